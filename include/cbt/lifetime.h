// Who keeps memory alive. One rule for everything that is public:
//
// - What outlives the call that makes it keeps what it reads. Factories of cursors and streams take
//   owners: a vector that is moved in, SharedBytes, a Bitmap, a ChangeMap, a smart pointer.
// - What borrows says so in its name: types end in View, factories begin with MakeBorrowed. The
//   caller then keeps the memory, unchanged, as long as the view and everything made from it. A
//   temporary that owns its bytes can't be borrowed; it does not compile.
// - Spans, references and string views in other functions are used during the call only.
// - Executors, observers, providers and stores belong to the program: they are passed by reference
//   or pointer, and must outlive what they are given to.
#ifndef CBT_LIFETIME_H_
#define CBT_LIFETIME_H_

#include <cstdint>
#include <span>
#include <type_traits>

#include "cbt/version.h"

// On a parameter, or behind a member function: the result points into it. Compilers that know the
// attribute (clang) then warn about results that outlive it.
#if defined(__has_cpp_attribute)
#if __has_cpp_attribute(clang::lifetimebound)
#define CBT_LIFETIME_BOUND [[clang::lifetimebound]]
#endif
#endif
#ifndef CBT_LIFETIME_BOUND
#define CBT_LIFETIME_BOUND
#endif

namespace cbt {

// A temporary that owns the bytes that it converts to, such as a vector (T as a forwarding
// reference deduces it). Overloads for it are deleted where a function borrows.
template <typename T>
concept TemporaryBytes =
    !std::is_lvalue_reference_v<T> && !std::is_trivially_destructible_v<std::remove_cvref_t<T>> &&
    std::is_convertible_v<T, std::span<const uint8_t>>;

}  // namespace cbt

#endif  // CBT_LIFETIME_H_
