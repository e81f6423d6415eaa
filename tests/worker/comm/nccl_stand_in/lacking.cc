// A library that has NCCL's name and version, and one of its functions.
extern "C" int ncclGetVersion(int* version) {
  *version = 22809;
  return 0;
}
