// What every group of the C interface shares: errors, versions, and who keeps memory alive.
//
// Rules that hold for every function, unless its comment says otherwise:
//
// - Units: offsets, lengths, capacities and sizes are bytes, as uint64_t. Ranges are half open.
// - Errors: a call that can fail returns a cbt_code and takes `cbt_error** error` last. `error` may
//   be NULL. Otherwise *error is set: to NULL on success, to an error that the caller frees on
//   failure. Results behind other pointers are written on success; handles among them are NULL on
//   failure. Nothing throws, aborts or sets errno. RESOURCE_EXHAUSTED: memory or threads ran out.
//   INVALID_ARGUMENT: a NULL that is not allowed, an unknown value of an enumeration, a structure
//   without its struct_size.
// - Ownership: a handle belongs to the caller, who frees it with cbt_<type>_free(); NULL is allowed
//   there. Arguments are used during the call only. What outlives the call is copied, or has an
//   owner (cbt_bytes_own()). Only functions with `borrowed` in their name keep a pointer into the
//   caller's memory, or return one into a handle: such a pointer is valid until the handle is
//   changed or freed. A handle keeps alive what it was made from, so handles can be freed in any
//   order.
// - Threads: a handle may move between threads. Calls on one handle must not overlap unless its
//   type says so; cursors, streams, checkers and builders refuse overlapping calls with
//   FAILED_PRECONDITION. Calls on different handles may overlap. No function keeps state of a
//   thread, so a caller may change threads between any two calls. Don't cancel a thread
//   (pthread_cancel) inside of a call.
// - Callbacks: they may call the library, but not with the handle whose call they serve. A callback
//   that returns an error sets *error to one of cbt_error_new(), or leaves it NULL. A C++ exception
//   that leaves a callback counts as INTERNAL; longjmp() and a panic of another language must not
//   leave one.
// - fork(): a child may use and free cursors, maps, bytes, streams and checkers whose calls did not
//   run during the fork. Chains, trackers, servers and cursors of clients refuse calls in a child,
//   and freeing them there leaves the parent's alone. A child may make new ones.
// - Signals: the library installs no handler and ignores no signal.
// - Structures whose first member is struct_size begin as CBT_INIT(type), and may grow in later
//   versions. Every value that CBT_INIT leaves 0 is the default. Structures without the member
//   never change.
// - Texts are UTF-8. NULL is the empty text.
#ifndef CBT_C_BASE_H_
#define CBT_C_BASE_H_

#include <stddef.h>
#include <stdint.h>

// The version of the binary interface that this header describes. Minor versions only add. Each
// function has a macro CBT_HAVE_<function> (cbt/c/have.h).
#define CBT_ABI_MAJOR 1
#define CBT_ABI_MINOR 0

#if defined(__GNUC__)
#define CBT_API __attribute__((visibility("default")))
#else
#define CBT_API
#endif

#ifdef __cplusplus
#define CBT_NOTHROW noexcept
// The initial value of a structure with a struct_size.
#define CBT_INIT(type)                \
  ([] {                               \
    type value = {};                  \
    value.struct_size = sizeof(type); \
    return value;                     \
  }())
#else
#define CBT_NOTHROW
#define CBT_INIT(type) \
  { .struct_size = sizeof(type) }
#endif

#ifdef __cplusplus
extern "C" {
#endif

// --- Errors

// The outcome of a call, with the numbers of gRPC's status codes.
typedef int32_t cbt_code;
enum {
  CBT_OK = 0,
  CBT_CANCELLED = 1,
  CBT_UNKNOWN = 2,
  CBT_INVALID_ARGUMENT = 3,
  CBT_DEADLINE_EXCEEDED = 4,
  CBT_NOT_FOUND = 5,
  CBT_ALREADY_EXISTS = 6,
  CBT_PERMISSION_DENIED = 7,
  CBT_RESOURCE_EXHAUSTED = 8,
  CBT_FAILED_PRECONDITION = 9,
  CBT_ABORTED = 10,
  CBT_OUT_OF_RANGE = 11,
  CBT_UNIMPLEMENTED = 12,
  CBT_INTERNAL = 13,
  CBT_UNAVAILABLE = 14,
  CBT_DATA_LOSS = 15,
  CBT_UNAUTHENTICATED = 16
};

// A code and a message. Constant: any number of threads may read it.
typedef struct cbt_error cbt_error;

// The name of a code as gRPC spells it, such as "NOT_FOUND"; "UNKNOWN" for other numbers. The text
// is static.
CBT_API const char* cbt_code_name(cbt_code code) CBT_NOTHROW;

// An error for a callback to return: copies `message` (`size` bytes). A `code` that is no error, or
// unknown, becomes UNKNOWN. Never NULL: without memory it is RESOURCE_EXHAUSTED.
CBT_API cbt_error* cbt_error_new(cbt_code code, const char* message, uint64_t size) CBT_NOTHROW;

// CBT_OK for NULL.
CBT_API cbt_code cbt_error_code(const cbt_error* error) CBT_NOTHROW;

// The message, which ends with a NUL; "" for NULL. Valid until the error is freed.
CBT_API const char* cbt_error_message_borrowed(const cbt_error* error) CBT_NOTHROW;

CBT_API void cbt_error_free(cbt_error* error) CBT_NOTHROW;

// --- Versions

// The binary interface of the loaded library: CBT_ABI_MAJOR * 65536 + CBT_ABI_MINOR. A program runs
// with a library of the same major and the same or a newer minor version.
CBT_API uint32_t cbt_abi_version(void) CBT_NOTHROW;

// The version of the loaded library, "major.minor.patch". The text is static.
CBT_API const char* cbt_version_string(void) CBT_NOTHROW;

// The instruction set that the kernels use: "scalar", "sse42", "avx2", "avx512" or "neon". The
// environment variable CBT_SIMD forces one. The text is static.
CBT_API const char* cbt_simd_level(void) CBT_NOTHROW;

// --- Bytes

// Bytes that a handle keeps. They must not change while the handle, or anything made from it,
// exists: an answer read from changing bytes may miss changes. Any number of threads may use one
// handle.
typedef struct cbt_bytes cbt_bytes;

// A copy of `size` bytes at `data`. Cost: one copy.
CBT_API cbt_code cbt_bytes_copy(const void* data, uint64_t size, cbt_bytes** bytes,
                                cbt_error** error) CBT_NOTHROW;

// The bytes at `data`, without a copy. `release(owner)` is called once, from any thread, when
// nothing uses them any more. If this call fails, it is not called.
CBT_API cbt_code cbt_bytes_own(const void* data, uint64_t size, void* owner,
                               void (*release)(void* owner), cbt_bytes** bytes,
                               cbt_error** error) CBT_NOTHROW;

// The bytes at `data`, without a copy and without an owner: the caller keeps them, unchanged, until
// this handle and everything made from it are freed.
CBT_API cbt_code cbt_bytes_borrowed(const void* data, uint64_t size, cbt_bytes** bytes,
                                    cbt_error** error) CBT_NOTHROW;

// The first byte, valid until the handle is freed; NULL for NULL and perhaps for no bytes.
CBT_API const void* cbt_bytes_data_borrowed(const cbt_bytes* bytes) CBT_NOTHROW;

// Their number; 0 for NULL.
CBT_API uint64_t cbt_bytes_size(const cbt_bytes* bytes) CBT_NOTHROW;

CBT_API void cbt_bytes_free(cbt_bytes* bytes) CBT_NOTHROW;

#ifdef __cplusplus
}
#endif

#endif  // CBT_C_BASE_H_
