// CRoaring's iterator under its names of 0.2 and under those of today, of which the older ones are
// deprecated. The header is asked which of them there are: not every release has a version macro.
#ifndef CBT_BENCH_SUPPORT_ROARING_ITERATOR_H_
#define CBT_BENCH_SUPPORT_ROARING_ITERATOR_H_

#include <roaring/roaring.h>

#include <cstdint>

namespace cbt::bench {

// At the first value of the bitmap.
template <typename Bitmap, typename Iterator>
void StartRoaring(const Bitmap* bitmap, Iterator* iterator) {
  if constexpr (requires { roaring_iterator_init(bitmap, iterator); }) {
    roaring_iterator_init(bitmap, iterator);
  } else {
    roaring_init_iterator(bitmap, iterator);
  }
}

// The next values, `room` at most. Returns: how many there were.
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
