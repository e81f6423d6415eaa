// A thin C++ layer over cuDNN's backend API: descriptors that free themselves, and a graph that
// collects operations and builds an execution plan. Tensors are 4-D, with dimensions [b, heads, s,
// d]; strides make the memory order free. Errors of the library throw DeviceError.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include <cudnn.h>

#include "kernels/core/tensor.h"

namespace mt::kernels::cuda {

// Owns a backend descriptor. Finalize throws if the library refuses it, TryFinalize returns false.
class CudnnDescriptor {
 public:
  explicit CudnnDescriptor(cudnnBackendDescriptorType_t type);
  ~CudnnDescriptor();
  CudnnDescriptor(CudnnDescriptor&& other) noexcept;
  CudnnDescriptor(const CudnnDescriptor&) = delete;
  CudnnDescriptor& operator=(const CudnnDescriptor&) = delete;
  cudnnBackendDescriptor_t raw() const { return descriptor_; }

  template <class T>
  void Set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const T* values,
           int64_t count) {
    SetRaw(name, type, count, values);
  }
  template <class T>
  void Set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const T& value) {
    SetRaw(name, type, 1, &value);
  }
  void SetDescriptor(cudnnBackendAttributeName_t name, cudnnBackendDescriptor_t value);
  void Finalize();
  bool TryFinalize();

 private:
  void SetRaw(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
              const void* values);
  cudnnBackendDescriptor_t descriptor_ = nullptr;
};

using CudnnDims = std::array<int64_t, 4>;
using CudnnTensor = cudnnBackendDescriptor_t;

// An execution plan that is ready to run. Thread-safe, because running it changes nothing.
class CudnnPlan {
 public:
  CudnnPlan(CudnnDescriptor config, CudnnDescriptor plan, int64_t workspace_bytes);
  int64_t workspace_bytes() const { return workspace_bytes_; }

 private:
  friend class CudnnLauncher;
  CudnnDescriptor config_, plan_;
  const int64_t workspace_bytes_;
};

// Collects the operations of one graph; each call adds one, with operands named as in its signature
// (outputs last). Owns all descriptors, so it must outlive Build, but not the plan. One thread.
class CudnnGraph {
 public:
  explicit CudnnGraph(cudnnHandle_t handle) : handle_(handle) {}

  // A tensor in memory, bound to a pointer by `uid` when the plan runs.
  CudnnTensor Real(int64_t uid, cudnnDataType_t type, const CudnnDims& dims,
                   const CudnnDims& strides);
  // An intermediate tensor that is never in memory.
  CudnnTensor Virtual(cudnnDataType_t type, const CudnnDims& dims, const CudnnDims& strides);
  // A scalar in host memory, read when the plan runs.
  CudnnTensor Constant(int64_t uid, cudnnDataType_t type);

  void Matmul(CudnnTensor a, CudnnTensor b, CudnnTensor c);
  void Unary(cudnnPointwiseMode_t mode, CudnnTensor x, CudnnTensor y);
  void Binary(cudnnPointwiseMode_t mode, CudnnTensor x, CudnnTensor b, CudnnTensor y);
  void Index(CudnnTensor x, int64_t axis, CudnnTensor y);
  void Select(CudnnTensor x, CudnnTensor otherwise, CudnnTensor where, CudnnTensor y);
  void Reduce(cudnnReduceTensorOp_t kind, CudnnTensor x, CudnnTensor y);
  void Reshape(CudnnTensor x, CudnnTensor y);

  // Returns a plan from the first engine configuration of the heuristic that builds; nullptr if
  // none does.
  std::unique_ptr<CudnnPlan> Build();

 private:
  CudnnDescriptor& Make(cudnnBackendDescriptorType_t type);
  CudnnTensor MakeTensor(int64_t uid, cudnnDataType_t type, const CudnnDims& dims,
                         const CudnnDims& strides, cudnnBackendAttributeName_t flag, bool flagged);
  CudnnDescriptor& Pointwise(cudnnPointwiseMode_t mode, CudnnTensor x, CudnnTensor y,
                             int64_t axis = -1);

  const cudnnHandle_t handle_;
  std::vector<std::unique_ptr<CudnnDescriptor>> owned_;
  std::vector<cudnnBackendDescriptor_t> operations_;
  int64_t next_uid_ = 1000;  // ids of virtual tensors
};

// One execution of a plan: tensor ids bound to pointers (device memory, or host memory for
// constants).
class CudnnLauncher {
 public:
  void Bind(int64_t uid, const void* data) {
    uids_[count_] = uid;
    data_[count_++] = const_cast<void*>(data);
  }
  // Enqueues the plan on the stream that `handle` is set to.
  void Run(cudnnHandle_t handle, const CudnnPlan& plan, void* workspace);

 private:
  static constexpr size_t kMaxBindings = 24;
  std::array<int64_t, kMaxBindings> uids_{};
  std::array<void*, kMaxBindings> data_{};
  size_t count_ = 0;
};

}  // namespace mt::kernels::cuda
