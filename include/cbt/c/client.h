// A client of the contracts: a remote stream as a cursor.
//
// snippet: tests/consumer/snippets/c.c#client
//   cbt_client_options options = CBT_INIT(cbt_client_options);
//   options.address = "unix:///csi/csi.sock";
//   options.base = "monday";
//   options.snapshot = "tuesday";
//   cbt_client* client = NULL;
//   cbt_cursor* cursor = NULL;
//   if (cbt_client_new(&options, &client, &error) != CBT_OK) return failed(error);
//   if (cbt_client_open(client, &cursor, &error) != CBT_OK) return failed(error);
//   if (read_cursor(cursor) != 0) return 1;  // see cbt/c/cursor.h
//   int32_t proof = CBT_PROOF_ABSENT;
//   if (cbt_client_proof(client, &proof, &error) != CBT_OK) return failed(error);
//
// The cursor checks every message. When the connection breaks, it resumes at the end of the last
// extent: none is repeated or skipped. It is complete only once the server ended the stream with OK
// and its proof, if it sent one, agrees.
//
// To continue later, in another process too: store cbt_cursor_covered() and
// cbt_client_version_borrowed() with what was received, and pass them as `starting_offset` and
// `source_version`.
//
// A provider may answer with the cursor, or with what was made of it: the stream is then proven as
// far back as this client's is. A map that was made of it keeps no proof: check cbt_client_proof().
#ifndef CBT_C_CLIENT_H_
#define CBT_C_CLIENT_H_

#include "cbt/c/base.h"
#include "cbt/c/cursor.h"
#include "cbt/c/server.h"
#include "cbt/c/wire.h"

#ifdef __cplusplus
extern "C" {
#endif

// One request. Any number of threads may use one client. In a forked child, a cursor that was
// opened before the fork fails with FAILED_PRECONDITION, and freeing it leaves the parent's alone.
typedef struct cbt_client cbt_client;

// What an answer means that the server ends with OK and without a message: it reports nothing, and
// does not say how large the volume is.
enum {
  CBT_NO_MESSAGE_NEEDS_CAPACITY = 0,  // empty if `capacity` is set, otherwise DATA_LOSS
  CBT_NO_MESSAGE_ACCEPTED = 1,        // empty, see cbt_client_info
  CBT_NO_MESSAGE_REFUSED = 2          // DATA_LOSS
};

// For `retry_ms`: the first failure is final.
#define CBT_NO_RETRY UINT64_MAX

typedef struct cbt_client_options {
  uint64_t struct_size;
  // `unix:///path` or `host:port`. Required.
  const char* address;
  // The target snapshot. Required. `base`: the base of a delta; NULL: what is allocated.
  const char* snapshot;
  const char* base;
  int32_t contract;       // CBT_CONTRACT_CSI, ...
  int32_t require_proof;  // not 0: without a proof that reaches back to the source it fails
  // For contracts that have them: the security or session token, the namespace, the volume.
  const char* token;
  const char* name_space;
  const char* volume;
  // Passed on to the server.
  const cbt_metadata* secrets;
  uint64_t secret_count;
  // The first bytes to report on, and the version of the stream that this one continues (NULL: not
  // compared): another one fails with ABORTED.
  uint64_t starting_offset;
  const char* source_version;
  uint32_t max_results;  // tuples of a message; 0: the server's choice
  int32_t no_message;    // CBT_NO_MESSAGE_NEEDS_CAPACITY, ...
  uint64_t capacity;     // the volume's (bytes), for an answer without a message; 0: unknown
  // Not 0: the last block of a FIXED_LENGTH stream keeps its size, even past the capacity.
  int32_t wire_tuples;
  // Not 0: TLS, with PEM texts; without a CA the system's roots are used.
  int32_t tls;
  const char* ca;
  const char* certificate;
  const char* key;
  // Limits in milliseconds: for the stream with all its resumptions, 0: none; for a server that
  // sends nothing, 0: none; for trying again without progress, 0: five minutes, CBT_NO_RETRY: none.
  uint64_t timeout_ms;
  uint64_t stall_ms;
  uint64_t retry_ms;
  void* user;  // passed to the functions below, which may be NULL
  // Asked before each call, also when a stream is resumed: sets *token to the token to use, which
  // is then freed. In the thread that reads.
  cbt_code (*next_token)(void* user, cbt_bytes** token, cbt_error** error);
  // Called before each further attempt: where the stream will be opened (bytes), and why.
  void (*on_resume)(void* user, uint64_t offset, cbt_code code, const char* reason);
  // Called once when the client and its cursor are freed.
  void (*release)(void* user);
} cbt_client_options;

// Copies `options`; does not connect. If this call fails, `release` is not called.
// Errors: INVALID_ARGUMENT that names the option.
CBT_API cbt_code cbt_client_new(const cbt_client_options* options, cbt_client** client,
                                cbt_error** error) CBT_NOTHROW;

// Connects and waits for the first message; tries again while the server is UNAVAILABLE. The cursor
// reads the rest: from its thread, and without another one. It keeps what it needs of the client.
// Errors: FAILED_PRECONDITION if the client was opened before (another request takes another
//         client), those of the server with their code, UNAVAILABLE if it can't be reached,
//         CANCELLED. A client that failed can be opened again.
CBT_API cbt_code cbt_client_open(cbt_client* client, cbt_cursor** cursor,
                                 cbt_error** error) CBT_NOTHROW;

// What is known once the client is open.
typedef struct cbt_client_info {
  uint64_t struct_size;
  int32_t type;  // CBT_FIXED_LENGTH or CBT_VARIABLE_LENGTH
  // 0: the volume's size is unknown (CBT_NO_MESSAGE_ACCEPTED). The cursor then ends at the starting
  // offset: nothing may be cut to that size.
  int32_t capacity_known;
  // Not 0: the data may change while its version stays the same. Such a stream can't be continued
  // by another one.
  int32_t may_change;
  // What the server announced, from the starting offset on; 0: nothing.
  int32_t has_summary_bytes;
  int32_t has_summary_tuples;
  int32_t reserved;  // 0
  uint64_t summary_bytes;
  uint64_t summary_tuples;
  uint64_t resumes;  // attempts to resume so far
} cbt_client_info;

// Errors: FAILED_PRECONDITION until the client is open.
CBT_API cbt_code cbt_client_get_info(const cbt_client* client, cbt_client_info* info,
                                     cbt_error** error) CBT_NOTHROW;

// The version of the server's data; "" if it reports none, until the client is open, and for NULL.
// Valid until the client is freed.
CBT_API const char* cbt_client_version_borrowed(const cbt_client* client) CBT_NOTHROW;

// What is proven about the answer: CBT_PROOF_ABSENT, ... (cbt/c/wire.h). A stream that was resumed
// without a version to compare is CBT_PROOF_HOLDS_FOR_PLACE: its parts may be of two states.
// Errors: FAILED_PRECONDITION until the cursor, or what was made of it, has returned everything.
CBT_API cbt_code cbt_client_proof(const cbt_client* client, int32_t* proof,
                                  cbt_error** error) CBT_NOTHROW;

// Makes the client's calls, also one that runs, and its cursor fail with CANCELLED soon.
CBT_API void cbt_client_cancel(cbt_client* client) CBT_NOTHROW;

// The cursor continues.
CBT_API void cbt_client_free(cbt_client* client) CBT_NOTHROW;

#ifdef __cplusplus
}
#endif

#endif  // CBT_C_CLIENT_H_
