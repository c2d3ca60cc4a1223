// Results where memory may run out: a call must end, and its `done` be called, anyway.
#ifndef CBT_KUBE_CLIENT_NO_THROW_H_
#define CBT_KUBE_CLIENT_NO_THROW_H_

#include <exception>
#include <type_traits>

#include "absl/status/status.h"

namespace cbt::kube {

// Has no text, so it needs no memory.
inline absl::Status OutOfMemory() noexcept { return {absl::StatusCode::kResourceExhausted, ""}; }

// What `make` returns, an absl::Status or absl::StatusOr; RESOURCE_EXHAUSTED if it throws.
template <typename Make>
std::invoke_result_t<Make> OrOutOfMemory(const Make& make) noexcept {
  try {
    return make();
  } catch (const std::exception&) {
    return OutOfMemory();
  }
}

}  // namespace cbt::kube

#endif  // CBT_KUBE_CLIENT_NO_THROW_H_
