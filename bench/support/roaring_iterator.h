// CRoaring's iterator under its names in 0.2 and under the current ones; the old ones are
// deprecated. Detected from the header: not every release has a version macro.
#ifndef CBT_BENCH_SUPPORT_ROARING_ITERATOR_H_
#define CBT_BENCH_SUPPORT_ROARING_ITERATOR_H_

#include <roaring/roaring.h>

#include <cstdint>

namespace cbt::bench {

// An iterator at the first value of the bitmap.
template <typename Bitmap, typename Iterator>
void StartRoaring(const Bitmap* bitmap, Iterator* iterator) {
  if constexpr (requires { roaring_iterator_init(bitmap, iterator); }) {
    roaring_iterator_init(bitmap, iterator);
  } else {
    roaring_init_iterator(bitmap, iterator);
  }
}

// Reads the next values, at most `room`. Returns their number.
template <typename Iterator>
uint32_t ReadRoaring(Iterator* iterator, uint32_t* values, uint32_t room) {
  if constexpr (requires { roaring_uint32_iterator_read(iterator, values, room); }) {
    return roaring_uint32_iterator_read(iterator, values, room);
  } else {
    return roaring_read_uint32_iterator(iterator, values, room);
  }
}

}  // namespace cbt::bench

#endif  // CBT_BENCH_SUPPORT_ROARING_ITERATOR_H_
