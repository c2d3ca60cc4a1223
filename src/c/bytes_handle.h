// The handle of bytes.
#ifndef CBT_C_BYTES_HANDLE_H_
#define CBT_C_BYTES_HANDLE_H_

#include <utility>

#include "c/border.h"
#include "cbt/lifetime.h"

struct cbt_bytes : cbt::c::Handle {
  explicit cbt_bytes(cbt::SharedBytes kept) : Handle(&kKind<cbt_bytes>), bytes(std::move(kept)) {}
  const cbt::SharedBytes bytes;
};

#endif  // CBT_C_BYTES_HANDLE_H_
