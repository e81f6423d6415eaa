// Calls of cuDNN's backend API ("cuDNN Graph API" in NVIDIA's documentation). All arithmetic inside
// a graph is fp32, whatever the tensors' dtypes.
#include "kernels/cuda/attention/cudnn_graph.h"

#include <utility>

#include "kernels/cuda/device/library_check.h"

namespace mt::kernels::cuda {

CudnnDescriptor::CudnnDescriptor(cudnnBackendDescriptorType_t type) {
  CUDNN_CHECK(cudnnBackendCreateDescriptor(type, &descriptor_));
}

CudnnDescriptor::~CudnnDescriptor() {
  if (descriptor_ != nullptr) cudnnBackendDestroyDescriptor(descriptor_);
}

CudnnDescriptor::CudnnDescriptor(CudnnDescriptor&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, nullptr)) {}

void CudnnDescriptor::SetRaw(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                             int64_t count, const void* values) {
  CUDNN_CHECK(cudnnBackendSetAttribute(descriptor_, name, type, count, values));
}

void CudnnDescriptor::SetDescriptor(cudnnBackendAttributeName_t name,
                                    cudnnBackendDescriptor_t value) {
  SetRaw(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

void CudnnDescriptor::Finalize() { CUDNN_CHECK(cudnnBackendFinalize(descriptor_)); }

bool CudnnDescriptor::TryFinalize() {
  return cudnnBackendFinalize(descriptor_) == CUDNN_STATUS_SUCCESS;
}

CudnnPlan::CudnnPlan(CudnnDescriptor config, CudnnDescriptor plan, int64_t workspace_bytes)
    : config_(std::move(config)), plan_(std::move(plan)), workspace_bytes_(workspace_bytes) {}

CudnnDescriptor& CudnnGraph::Make(cudnnBackendDescriptorType_t type) {
  return *owned_.emplace_back(std::make_unique<CudnnDescriptor>(type));
}

CudnnTensor CudnnGraph::MakeTensor(int64_t uid, cudnnDataType_t type, const CudnnDims& dims,
                                   const CudnnDims& strides, cudnnBackendAttributeName_t flag,
                                   bool flagged) {
  CudnnDescriptor& tensor = Make(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  tensor.Set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, type);
  tensor.Set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, dims.data(), 4);
  tensor.Set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, strides.data(), 4);
  tensor.Set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, uid);
  tensor.Set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, int64_t{16});
  if (flagged) tensor.Set(flag, CUDNN_TYPE_BOOLEAN, true);
  tensor.Finalize();
  return tensor.raw();
}

CudnnTensor CudnnGraph::Real(int64_t uid, cudnnDataType_t type, const CudnnDims& dims,
                             const CudnnDims& strides) {
  return MakeTensor(uid, type, dims, strides, CUDNN_ATTR_TENSOR_IS_VIRTUAL, false);
}

CudnnTensor CudnnGraph::Virtual(cudnnDataType_t type, const CudnnDims& dims,
                                const CudnnDims& strides) {
  return MakeTensor(next_uid_++, type, dims, strides, CUDNN_ATTR_TENSOR_IS_VIRTUAL, true);
}

CudnnTensor CudnnGraph::Constant(int64_t uid, cudnnDataType_t type) {
  return MakeTensor(uid, type, {1, 1, 1, 1}, {1, 1, 1, 1}, CUDNN_ATTR_TENSOR_IS_BY_VALUE, true);
}

void CudnnGraph::Matmul(CudnnTensor a, CudnnTensor b, CudnnTensor c) {
  CudnnDescriptor& matmul = Make(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  matmul.Set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
  matmul.Finalize();
  CudnnDescriptor& op = Make(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
  op.SetDescriptor(CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
  op.SetDescriptor(CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
  op.SetDescriptor(CUDNN_ATTR_OPERATION_MATMUL_CDESC, c);
  op.SetDescriptor(CUDNN_ATTR_OPERATION_MATMUL_DESC, matmul.raw());
  op.Finalize();
  operations_.push_back(op.raw());
}

// Adds a pointwise operation without its second operand and predicate; the caller sets those and
// finalizes it.
CudnnDescriptor& CudnnGraph::Pointwise(cudnnPointwiseMode_t mode, CudnnTensor x, CudnnTensor y,
                                       int64_t axis) {
  const bool compares = mode == CUDNN_POINTWISE_CMP_GE || mode == CUDNN_POINTWISE_CMP_GT;
  CudnnDescriptor& pointwise = Make(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  pointwise.Set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, mode);
  pointwise.Set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE,
                compares ? CUDNN_DATA_BOOLEAN : CUDNN_DATA_FLOAT);
  if (axis >= 0) pointwise.Set(CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, axis);
  pointwise.Finalize();
  CudnnDescriptor& op = Make(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  op.SetDescriptor(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, pointwise.raw());
  op.SetDescriptor(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
  op.SetDescriptor(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
  operations_.push_back(op.raw());
  return op;
}

void CudnnGraph::Unary(cudnnPointwiseMode_t mode, CudnnTensor x, CudnnTensor y) {
  Pointwise(mode, x, y).Finalize();
}

void CudnnGraph::Binary(cudnnPointwiseMode_t mode, CudnnTensor x, CudnnTensor b, CudnnTensor y) {
  CudnnDescriptor& op = Pointwise(mode, x, y);
  op.SetDescriptor(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
  op.Finalize();
}

void CudnnGraph::Index(CudnnTensor x, int64_t axis, CudnnTensor y) {
  Pointwise(CUDNN_POINTWISE_GEN_INDEX, x, y, axis).Finalize();
}

void CudnnGraph::Select(CudnnTensor x, CudnnTensor otherwise, CudnnTensor where, CudnnTensor y) {
  CudnnDescriptor& op = Pointwise(CUDNN_POINTWISE_BINARY_SELECT, x, y);
  op.SetDescriptor(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, otherwise);
  op.SetDescriptor(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, where);
  op.Finalize();
}

void CudnnGraph::Reduce(cudnnReduceTensorOp_t kind, CudnnTensor x, CudnnTensor y) {
  CudnnDescriptor& reduction = Make(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  reduction.Set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, kind);
  reduction.Set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
  reduction.Finalize();
  CudnnDescriptor& op = Make(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
  op.SetDescriptor(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
  op.SetDescriptor(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
  op.SetDescriptor(CUDNN_ATTR_OPERATION_REDUCTION_DESC, reduction.raw());
  op.Finalize();
  operations_.push_back(op.raw());
}

void CudnnGraph::Reshape(CudnnTensor x, CudnnTensor y) {
  CudnnDescriptor& op = Make(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
  op.SetDescriptor(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
  op.SetDescriptor(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
  op.Finalize();
  operations_.push_back(op.raw());
}

std::unique_ptr<CudnnPlan> CudnnGraph::Build() {
  constexpr int64_t kMaxConfigs = 8;
  CudnnDescriptor graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  graph.Set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, operations_.data(),
            static_cast<int64_t>(operations_.size()));
  graph.Set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, handle_);
  if (!graph.TryFinalize()) return nullptr;
  CudnnDescriptor heuristic(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristic.SetDescriptor(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph.raw());
  heuristic.Set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, CUDNN_HEUR_MODE_A);
  if (!heuristic.TryFinalize()) return nullptr;
  std::vector<CudnnDescriptor> configs;
  std::array<cudnnBackendDescriptor_t, kMaxConfigs> raw{};
  for (auto& config : raw) {
    config = configs.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR).raw();
  }
  int64_t found = 0;
  CUDNN_CHECK(cudnnBackendGetAttribute(heuristic.raw(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                       CUDNN_TYPE_BACKEND_DESCRIPTOR, kMaxConfigs, &found,
                                       raw.data()));
  for (size_t i = 0; i < static_cast<size_t>(found); ++i) {
    CudnnDescriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    plan.Set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, handle_);
    plan.SetDescriptor(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, raw[i]);
    if (!plan.TryFinalize()) continue;
    int64_t count = 0, bytes = 0;
    CUDNN_CHECK(cudnnBackendGetAttribute(plan.raw(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                         CUDNN_TYPE_INT64, 1, &count, &bytes));
    return std::make_unique<CudnnPlan>(std::move(configs[i]), std::move(plan), bytes);
  }
  return nullptr;
}

void CudnnLauncher::Run(cudnnHandle_t handle, const CudnnPlan& plan, void* workspace) {
  CudnnDescriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  const auto count = static_cast<int64_t>(count_);
  pack.Set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, uids_.data(), count);
  pack.Set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, data_.data(), count);
  pack.Set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, workspace);
  pack.Finalize();
  CUDNN_CHECK(cudnnBackendExecute(handle, plan.plan_.raw(), pack.raw()));
}

}  // namespace mt::kernels::cuda
