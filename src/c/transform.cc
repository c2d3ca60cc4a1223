#include "cbt/transform.h"

#include <memory>
#include <vector>

#include "c/handles.h"

namespace cbt::c {
namespace {

// Consumes `input` and returns what `make` makes of it.
template <typename Make>
cbt_code Transform(cbt_cursor* input, cbt_cursor** cursor, cbt_error** error,
                   const Make& make) noexcept {
  return AtBorder(error, [&]() -> absl::Status {
    if (cursor != nullptr) *cursor = nullptr;
    Proofs proofs;
    absl::StatusOr<std::unique_ptr<ExtentCursor>> taken = Consume(input, "input", proofs);
    if (!taken.ok()) return taken.status();
    if (cursor == nullptr) return IsNull("cursor");
    return Return(make(*std::move(taken)), cursor, std::move(proofs));
  });
}

template <typename Make>
cbt_code Combine(cbt_cursor* a, cbt_cursor* b, cbt_cursor** cursor, cbt_error** error,
                 const Make& make) noexcept {
  return AtBorder(error, [&]() -> absl::Status {
    if (cursor != nullptr) *cursor = nullptr;
    Proofs proofs;
    absl::StatusOr<std::unique_ptr<ExtentCursor>> first = Consume(a, "a", proofs);
    // `a` is gone: it can't be the second one too.
    absl::StatusOr<std::unique_ptr<ExtentCursor>> second =
        a == b ? absl::InvalidArgumentError("b: the same cursor as a") : Consume(b, "b", proofs);
    if (!first.ok()) return first.status();
    if (!second.ok()) return second.status();
    if (cursor == nullptr) return IsNull("cursor");
    return Return(make(*std::move(first), *std::move(second)), cursor, std::move(proofs));
  });
}

}  // namespace
}  // namespace cbt::c

using Cursor = std::unique_ptr<cbt::ExtentCursor>;

cbt_code cbt_cursor_coalesce(cbt_cursor* input, uint64_t max_gap, cbt_cursor** cursor,
                             cbt_error** error) noexcept {
  return cbt::c::Transform(input, cursor, error,
                           [&](Cursor taken) { return cbt::Coalesce(std::move(taken), max_gap); });
}

cbt_code cbt_cursor_split(cbt_cursor* input, uint64_t max_length, cbt_cursor** cursor,
                          cbt_error** error) noexcept {
  return cbt::c::Transform(input, cursor, error,
                           [&](Cursor taken) { return cbt::Split(std::move(taken), max_length); });
}

cbt_code cbt_cursor_align_outward(cbt_cursor* input, uint64_t granularity, cbt_cursor** cursor,
                                  cbt_error** error) noexcept {
  return cbt::c::Transform(input, cursor, error, [&](Cursor taken) {
    return cbt::AlignOutward(std::move(taken), granularity);
  });
}

cbt_code cbt_cursor_clip(cbt_cursor* input, uint64_t begin, uint64_t end, cbt_cursor** cursor,
                         cbt_error** error) noexcept {
  return cbt::c::Transform(input, cursor, error,
                           [&](Cursor taken) { return cbt::Clip(std::move(taken), begin, end); });
}

cbt_code cbt_cursor_to_blocks(cbt_cursor* input, uint64_t block_size, cbt_cursor** cursor,
                              cbt_error** error) noexcept {
  return cbt::c::Transform(input, cursor, error, [&](Cursor taken) {
    return cbt::ToBlocks(std::move(taken), block_size);
  });
}

cbt_code cbt_cursor_union(cbt_cursor* const* inputs, uint64_t count, cbt_cursor** cursor,
                          cbt_error** error) noexcept {
  return cbt::c::AtBorder(error, [&]() -> absl::Status {
    if (cursor != nullptr) *cursor = nullptr;
    if (inputs == nullptr) return cbt::c::IsNull("inputs");
    std::vector<Cursor> taken;
    cbt::c::Proofs proofs;
    absl::Status failure;
    for (uint64_t i = 0; i < count; ++i) {
      bool again = false;
      for (uint64_t k = 0; k < i; ++k) again = again || inputs[k] == inputs[i];
      absl::StatusOr<Cursor> one = again
                                       ? absl::InvalidArgumentError("inputs: the same cursor twice")
                                       : cbt::c::Consume(inputs[i], "inputs", proofs);
      if (one.ok()) {
        taken.push_back(*std::move(one));
      } else {
        failure = one.status();
      }
    }
    if (!failure.ok()) return failure;
    if (cursor == nullptr) return cbt::c::IsNull("cursor");
    return cbt::c::Return(cbt::Union(std::move(taken)), cursor, std::move(proofs));
  });
}

cbt_code cbt_cursor_intersect(cbt_cursor* a, cbt_cursor* b, cbt_cursor** cursor,
                              cbt_error** error) noexcept {
  return cbt::c::Combine(a, b, cursor, error, [](Cursor first, Cursor second) {
    return cbt::Intersect(std::move(first), std::move(second));
  });
}

cbt_code cbt_cursor_subtract(cbt_cursor* a, cbt_cursor* b, cbt_cursor** cursor,
                             cbt_error** error) noexcept {
  return cbt::c::Combine(a, b, cursor, error, [](Cursor first, Cursor second) {
    return cbt::Subtract(std::move(first), std::move(second));
  });
}
