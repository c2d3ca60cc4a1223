// Scalar reference of run_edges, the list of its variants, and the choice between them.
#include "simd/run_edges.h"

#include <cstring>

#include "simd/dispatch.h"
#include "simd/kernels.h"

namespace cbt::simd {
namespace scalar {
namespace {

uint64_t LoadWord(const uint8_t* bytes) noexcept {
  uint64_t word;
  std::memcpy(&word, bytes, sizeof(word));
  return word;
}

template <typename WordAt>
EdgeScan Scan(WordAt word_at, size_t words, uint64_t position, uint64_t carry, uint64_t* edges,
              size_t room) noexcept {
  size_t written = 0;
  for (size_t i = 0; i < words; ++i) {
    if (room - written < kEdgesPerWord) return {i, written};
    const uint64_t word = word_at(i);
    uint64_t changes = word ^ (word << 1 | carry);
    carry = word >> 63;
    while (changes != 0) {
      edges[written++] = position + i * 64 + static_cast<uint64_t>(__builtin_ctzll(changes));
      changes &= changes - 1;
    }
  }
  return {words, written};
}

EdgeScan Single(const uint8_t* a, const uint8_t*, size_t words, uint64_t position, uint64_t carry,
                uint64_t* edges, size_t room) noexcept {
  return Scan([=](size_t i) { return LoadWord(a + i * 8); }, words, position, carry, edges, room);
}

EdgeScan Exclusive(const uint8_t* a, const uint8_t* b, size_t words, uint64_t position,
                   uint64_t carry, uint64_t* edges, size_t room) noexcept {
  return Scan([=](size_t i) { return LoadWord(a + i * 8) ^ LoadWord(b + i * 8); }, words, position,
              carry, edges, room);
}

EdgeScan AndNot(const uint8_t* a, const uint8_t* b, size_t words, uint64_t position, uint64_t carry,
                uint64_t* edges, size_t room) noexcept {
  return Scan([=](size_t i) { return LoadWord(b + i * 8) & ~LoadWord(a + i * 8); }, words, position,
              carry, edges, room);
}

EdgeScan Either(const uint8_t* a, const uint8_t* b, size_t words, uint64_t position, uint64_t carry,
                uint64_t* edges, size_t room) noexcept {
  return Scan([=](size_t i) { return LoadWord(a + i * 8) | LoadWord(b + i * 8); }, words, position,
              carry, edges, room);
}

EdgeScan Both(const uint8_t* a, const uint8_t* b, size_t words, uint64_t position, uint64_t carry,
              uint64_t* edges, size_t room) noexcept {
  return Scan([=](size_t i) { return LoadWord(a + i * 8) & LoadWord(b + i * 8); }, words, position,
              carry, edges, room);
}

}  // namespace

const RunEdgesKernels kRunEdges = {&Single, &Exclusive, &AndNot, &Either, &Both};

}  // namespace scalar

namespace {

constexpr Variant<RunEdgesKernels> kVariants[] = {
    {SimdLevel::kScalar, &scalar::kRunEdges},
#ifdef CBT_HAVE_SSE42
    {SimdLevel::kSse42, &sse42::kRunEdges},
#endif
#ifdef CBT_HAVE_AVX2
    {SimdLevel::kAvx2, &avx2::kRunEdges},
#endif
#ifdef CBT_HAVE_AVX512
    {SimdLevel::kAvx512, &avx512::kRunEdges},
#endif
#ifdef CBT_HAVE_NEON
    {SimdLevel::kNeon, &neon::kRunEdges},
#endif
};

// Long enough for every level's vector loop and its tail, with quiet stretches, full stretches and
// mixed words.
bool KnownAnswer(const RunEdgesKernels& candidate) noexcept {
  constexpr size_t kWords = 203;
  uint64_t a[kWords];
  uint64_t b[kWords];
  CheckPattern pattern;
  for (size_t i = 0; i < kWords; ++i) {
    const uint64_t kind = pattern.Next() % 4;
    a[i] = pattern.Next();
    b[i] = kind == 0 ? pattern.Next() : kind == 1 ? ~a[i] : a[i];
    if (i >= 64 && i < 128) a[i] = b[i] = 0;
    if (i >= 128 && i < 160) a[i] = ~(b[i] = 0);
  }
  const auto* bytes_a = reinterpret_cast<const uint8_t*>(a);
  const auto* bytes_b = reinterpret_cast<const uint8_t*>(b);
  constexpr RunEdgesFn* RunEdgesKernels::*kOperations[] = {
      &RunEdgesKernels::single, &RunEdgesKernels::exclusive, &RunEdgesKernels::and_not,
      &RunEdgesKernels::either, &RunEdgesKernels::both};
  uint64_t want[kWords * kEdgesPerWord];
  uint64_t got[kWords * kEdgesPerWord];
  for (const auto operation : kOperations) {
    const EdgeScan expected =
        (scalar::kRunEdges.*operation)(bytes_a, bytes_b, kWords, 7, 1, want, std::size(want));
    const EdgeScan scan =
        (candidate.*operation)(bytes_a, bytes_b, kWords, 7, 1, got, std::size(got));
    if (scan.words != expected.words || scan.edges != expected.edges) return false;
    if (std::memcmp(got, want, expected.edges * sizeof(got[0])) != 0) return false;
  }
  return true;
}

const Variant<RunEdgesKernels>& Chosen() noexcept {
  static const Variant<RunEdgesKernels>& chosen = Choose<RunEdgesKernels>(kVariants, &KnownAnswer);
  return chosen;
}

}  // namespace

std::span<const Variant<RunEdgesKernels>> RunEdgesVariants() noexcept { return kVariants; }
SimdLevel RunEdgesLevel() noexcept { return Chosen().level; }
const RunEdgesKernels& RunEdges() noexcept { return *Chosen().kernels; }

}  // namespace cbt::simd
