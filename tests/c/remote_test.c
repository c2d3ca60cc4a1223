// Servers, relays and clients in one process: what one serves the other reads, also after a cut;
// proofs, versions, tokens, callbacks that fail, cancelling, fork.
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

#define BLOCKS 200000
#define BLOCK 4096

static char scratch[64];
static int leaks_are_looked_for;

typedef struct storage {
  cbt_bytes* bits;
  const char* version;
  int may_change;
  atomic_int opened;
  atomic_int released;
  atomic_int hold;  // not 0: the provider waits until its stream is cancelled
  atomic_int held;
} storage;

static cbt_code open_snapshot(void* user, const cbt_request* request, cbt_answer* answer,
                              cbt_error** error) {
  storage* const it = (storage*)user;
  ++it->opened;
  const char* const target = cbt_request_target_borrowed(request, NULL);
  if (strcmp(target, "missing") == 0) {
    *error = cbt_error_new(CBT_NOT_FOUND, "no such snapshot", 16);
    return CBT_NOT_FOUND;
  }
  if (strcmp(target, "silent") == 0) return CBT_DATA_LOSS;
  if (strcmp(target, "secret") == 0) {
    const char* const secret = cbt_request_secret_borrowed(request, "key", NULL);
    if (secret == NULL || strcmp(secret, "value") != 0) return CBT_PERMISSION_DENIED;
  }
  while (it->hold) {
    it->held = 1;
    if (cbt_request_cancelled(request)) return CBT_CANCELLED;
    usleep(100);
  }
  const cbt_geometry volume = {(uint64_t)BLOCKS * BLOCK, BLOCK};
  cbt_cursor* cursor = NULL;
  cbt_code code = cbt_cursor_from_bitmap(it->bits, NULL, &volume, &cursor, error);
  if (code == CBT_OK) code = cbt_answer_set_cursor(answer, cursor, error);
  if (code == CBT_OK && it->version != NULL) {
    code = cbt_answer_set_version(answer, it->version, strlen(it->version), it->may_change, error);
  }
  return code;
}

static void release_storage(void* user) { ++((storage*)user)->released; }

static cbt_service* service_of(storage* it) {
  uint8_t* const bits = (uint8_t*)malloc(BLOCKS / 8);
  EXPECT(bits != NULL);
  memset(bits, 0x55, BLOCKS / 8);
  EXPECT_OK(cbt_bytes_copy(bits, BLOCKS / 8, &it->bits, &error));
  free(bits);
  it->version = "v1";
  cbt_provider provider = CBT_INIT(cbt_provider);
  provider.user = it;
  provider.open = open_snapshot;
  provider.release = release_storage;
  cbt_service_options options = CBT_INIT(cbt_service_options);
  options.plugin_name = "block.example.com";
  cbt_service* service = NULL;
  EXPECT_OK(cbt_service_new(&provider, &options, &service, &error));
  return service;
}

static const char* socket_named(const char* name) {
  static char address[8][108];
  static int last = 0;
  last = (last + 1) % 8;
  snprintf(address[last], sizeof(address[last]), "unix://%s/%s.sock", scratch, name);
  return address[last];
}

static cbt_server* serve(cbt_service* service, const char* address) {
  cbt_server_options options = CBT_INIT(cbt_server_options);
  options.listen = address;
  options.threads = 2;
  cbt_server* server = NULL;
  EXPECT_OK(cbt_server_start(service, &options, &server, &error));
  return server;
}

static cbt_client_options delta_at(const char* address) {
  cbt_client_options options = CBT_INIT(cbt_client_options);
  options.address = address;
  options.base = "monday";
  options.snapshot = "tuesday";
  options.retry_ms = 60000;
  return options;
}

static cbt_client* client_of(const cbt_client_options* options) {
  cbt_client* client = NULL;
  EXPECT_OK(cbt_client_new(options, &client, &error));
  return client;
}

static cbt_cursor* open_client(cbt_client* client) {
  cbt_cursor* cursor = NULL;
  EXPECT_OK(cbt_client_open(client, &cursor, &error));
  return cursor;
}

// The storage's answer from block `from` on, an even one.
static void expect_all(extents* found, uint64_t from) {
  EXPECT_EQ(found->count, BLOCKS / 2 - from / 2);
  for (uint64_t i = 0; i < found->count; ++i) {
    EXPECT_EQ(found->offsets[i], (from + 2 * i) * BLOCK);
    EXPECT_EQ(found->lengths[i], BLOCK);
  }
  clear_extents(found);
}

static void expect_proof(cbt_client* client, int32_t expected) {
  int32_t proof = -1;
  EXPECT_OK(cbt_client_proof(client, &proof, &error));
  EXPECT_EQ(proof, expected);
}

static void done(storage* it, cbt_service* service, cbt_server* server) {
  cbt_service_free(service);
  EXPECT_EQ(it->released, 0);
  cbt_server_free(server);
  EXPECT_EQ(it->released, 1);
  cbt_bytes_free(it->bits);
}

// --- A server and its clients

static void a_client_reads_what_a_server_serves(void) {
  storage it = {0};
  cbt_service* const service = service_of(&it);
  cbt_server* const server = serve(service, "127.0.0.1:0");
  const char* const address = cbt_server_address_borrowed(server);
  EXPECT(strncmp(address, "127.0.0.1:", 10) == 0 && atoi(address + 10) > 0);
  cbt_client_options options = delta_at(address);
  options.require_proof = 1;
  cbt_client* client = client_of(&options);
  cbt_client_info info = CBT_INIT(cbt_client_info);
  int32_t proof = 7;
  // Nothing is known before.
  EXPECT_FAILS(CBT_FAILED_PRECONDITION, "not open", cbt_client_get_info(client, &info, &error));
  EXPECT_FAILS(CBT_FAILED_PRECONDITION, "no answer yet", cbt_client_proof(client, &proof, &error));
  EXPECT_EQ(proof, CBT_PROOF_ABSENT);
  EXPECT(strcmp(cbt_client_version_borrowed(client), "") == 0);
  EXPECT_EQ(it.opened, 0);
  cbt_cursor* cursor = open_client(client);
  EXPECT_EQ(it.opened, 1);
  EXPECT_EQ(cbt_server_open_streams(server), 1);
  cbt_cursor* second = NULL;
  EXPECT_FAILS(CBT_FAILED_PRECONDITION, "opened before", cbt_client_open(client, &second, &error));
  EXPECT_OK(cbt_client_get_info(client, &info, &error));
  EXPECT_EQ(info.struct_size, sizeof(info));
  EXPECT_EQ(info.type, CBT_VARIABLE_LENGTH);
  EXPECT(info.capacity_known && !info.may_change && info.resumes == 0);
  EXPECT(strlen(cbt_client_version_borrowed(client)) == 32);
  EXPECT_EQ(cbt_cursor_geometry(cursor).capacity, (uint64_t)BLOCKS * BLOCK);
  // A part is no answer.
  cbt_batch batch;
  EXPECT_OK(cbt_cursor_next(cursor, &batch, &error));
  EXPECT(batch.count > 0 && !batch.complete);
  EXPECT_FAILS(CBT_FAILED_PRECONDITION, "no answer yet", cbt_client_proof(client, &proof, &error));
  EXPECT_OK(cbt_cursor_seek(cursor, 0, &error));
  extents found = read_all(cursor, 1000);
  expect_all(&found, 0);
  expect_proof(client, CBT_PROOF_HOLDS);
  // It can be read again, and from the middle.
  EXPECT_OK(cbt_cursor_seek(cursor, (uint64_t)BLOCK * 1000, &error));
  EXPECT_FAILS(CBT_FAILED_PRECONDITION, "no answer yet", cbt_client_proof(client, &proof, &error));
  found = read_all(cursor, 7);
  expect_all(&found, 1000);
  expect_proof(client, CBT_PROOF_HOLDS);
  cbt_cursor_free(cursor);
  cbt_client_free(client);
  // What is made of the cursor proves the same; the client may go first.
  client = client_of(&options);
  cursor = open_client(client);
  EXPECT_OK(cbt_cursor_coalesce(cursor, BLOCK, &cursor, &error));
  found = read_all(cursor, 10);
  EXPECT_EQ(found.count, 1);
  clear_extents(&found);
  expect_proof(client, CBT_PROOF_HOLDS);
  cbt_cursor_free(cursor);
  cbt_client_free(client);
  client = client_of(&options);
  cursor = open_client(client);
  cbt_client_free(client);
  found = read_all(cursor, 1024);
  expect_all(&found, 0);
  cbt_cursor_free(cursor);
  done(&it, service, server);
}

static void errors_of_a_provider_reach_the_client(void) {
  storage it = {0};
  cbt_service* const service = service_of(&it);
  cbt_server* const server = serve(service, socket_named("errors"));
  const struct {
    const char* snapshot;
    uint64_t from;
    cbt_code code;
    const char* words;
  } kCases[] = {{"missing", 0, CBT_NOT_FOUND, "no such snapshot"},
                {"silent", 0, CBT_DATA_LOSS, "without a message"},
                {"secret", 0, CBT_PERMISSION_DENIED, ""},
                {"", 0, CBT_INVALID_ARGUMENT, "snapshot"},
                {"tuesday", (uint64_t)BLOCKS * BLOCK + 1, CBT_OUT_OF_RANGE, "starting_offset"},
                {"tuesday", UINT64_MAX, CBT_OUT_OF_RANGE, "starting_offset"}};
  for (size_t i = 0; i < sizeof(kCases) / sizeof(kCases[0]); ++i) {
    cbt_client_options options = delta_at(cbt_server_address_borrowed(server));
    options.base = NULL;
    options.snapshot = kCases[i].snapshot;
    options.starting_offset = kCases[i].from;
    cbt_client* const client = client_of(&options);
    cbt_cursor* cursor = NULL;
    EXPECT_FAILS(kCases[i].code, kCases[i].words, cbt_client_open(client, &cursor, &error));
    EXPECT(cursor == NULL);
    // It may be tried again.
    EXPECT_FAILS(kCases[i].code, kCases[i].words, cbt_client_open(client, &cursor, &error));
    cbt_client_free(client);
  }
  cbt_client_options options = delta_at(cbt_server_address_borrowed(server));
  options.snapshot = "secret";
  const cbt_metadata secrets[] = {{"other", "x"}, {"key", "value"}};
  options.secrets = secrets;
  options.secret_count = 2;
  cbt_client* const client = client_of(&options);
  cbt_cursor* const cursor = open_client(client);
  extents found = read_all(cursor, 1024);
  expect_all(&found, 0);
  cbt_cursor_free(cursor);
  cbt_client_free(client);
  done(&it, service, server);
}

typedef struct resumed {
  atomic_int resumes;
  uint64_t at;
  atomic_int released;
} resumed;

static void note_resume(void* user, uint64_t offset, cbt_code code, const char* reason) {
  resumed* const it = (resumed*)user;
  ++it->resumes;
  it->at = offset;
  EXPECT(code == CBT_UNAVAILABLE || code == CBT_CANCELLED);
  EXPECT(reason != NULL && reason[0] != 0);
}

static void note_release(void* user) { ++((resumed*)user)->released; }

static void a_client_resumes_after_a_cut(void) {
  storage it = {0};
  cbt_service* const service = service_of(&it);
  const char* const address = socket_named("cut");
  cbt_server* server = serve(service, address);
  resumed about = {0};
  cbt_client_options options = delta_at(address);
  options.max_results = 100;
  options.require_proof = 1;
  options.user = &about;
  options.on_resume = note_resume;
  options.release = note_release;
  cbt_client* const client = client_of(&options);
  cbt_cursor* const cursor = open_client(client);
  extents found = {0};
  cbt_batch batch;
  int cuts = 0;
  do {
    EXPECT_OK(cbt_cursor_next(cursor, &batch, &error));
    for (uint64_t i = 0; i < batch.count; ++i) {
      add_extent(&found, batch.offsets[i], batch.lengths[i]);
    }
    if (found.count > (uint64_t)(cuts + 1) * BLOCKS / 8 && cuts < 2) {
      ++cuts;
      cbt_server_free(server);
      server = serve(service, address);
    }
  } while (!batch.complete);
  expect_all(&found, 0);
  expect_proof(client, CBT_PROOF_HOLDS);
  cbt_client_info info = CBT_INIT(cbt_client_info);
  EXPECT_OK(cbt_client_get_info(client, &info, &error));
  EXPECT(info.resumes > 0 && about.resumes > 0 && about.at > 0);
  cbt_client_free(client);
  EXPECT_EQ(about.released, 0);
  cbt_cursor_free(cursor);
  EXPECT_EQ(about.released, 1);
  done(&it, service, server);
}

static void another_client_continues(void) {
  storage it = {0};
  cbt_service* const service = service_of(&it);
  cbt_server* const server = serve(service, socket_named("later"));
  cbt_client_options options = delta_at(cbt_server_address_borrowed(server));
  cbt_client* client = client_of(&options);
  cbt_cursor* cursor = open_client(client);
  cbt_batch batch;
  EXPECT_OK(cbt_cursor_next(cursor, &batch, &error));
  EXPECT(batch.count > 0 && !batch.complete);
  const uint64_t covered = cbt_cursor_covered(cursor);
  char version[64];
  snprintf(version, sizeof(version), "%s", cbt_client_version_borrowed(client));
  cbt_cursor_free(cursor);
  cbt_client_free(client);
  options.starting_offset = covered;
  options.source_version = version;
  client = client_of(&options);
  cursor = open_client(client);
  extents found = read_all(cursor, 1024);
  EXPECT_EQ(found.offsets[0], covered / BLOCK % 2 == 0 ? covered : covered + BLOCK);
  EXPECT_EQ(found.offsets[found.count - 1], (uint64_t)(BLOCKS - 2) * BLOCK);
  clear_extents(&found);
  expect_proof(client, CBT_PROOF_HOLDS);
  cbt_cursor_free(cursor);
  cbt_client_free(client);
  // The snapshot was replaced in between.
  it.version = "v2";
  client = client_of(&options);
  EXPECT_FAILS(CBT_ABORTED, "changed", cbt_client_open(client, &cursor, &error));
  cbt_client_free(client);
  done(&it, service, server);
}

static void* read_a_server(void* address) {
  for (int turn = 0; turn < 2; ++turn) {
    cbt_client_options options = delta_at((const char*)address);
    cbt_client* const client = client_of(&options);
    cbt_cursor* const cursor = open_client(client);
    extents found = read_all(cursor, 1024);
    expect_all(&found, 0);
    expect_proof(client, CBT_PROOF_HOLDS);
    cbt_cursor_free(cursor);
    cbt_client_free(client);
  }
  return NULL;
}

static void many_clients_read_one_server(void) {
  storage it = {0};
  cbt_service* const service = service_of(&it);
  cbt_server* const server = serve(service, socket_named("many"));
  pthread_t threads[4];
  for (size_t i = 0; i < 4; ++i) {
    EXPECT(pthread_create(&threads[i], NULL, read_a_server,
                          (void*)(uintptr_t)cbt_server_address_borrowed(server)) == 0);
  }
  for (size_t i = 0; i < 4; ++i) pthread_join(threads[i], NULL);
  EXPECT_EQ(it.opened, 8);
  done(&it, service, server);
}

static void a_server_drains(void) {
  storage it = {0};
  cbt_service* const service = service_of(&it);
  const char* const address = socket_named("drain");
  cbt_server* const server = serve(service, address);
  // One server has the address.
  cbt_server_options options = CBT_INIT(cbt_server_options);
  options.listen = address;
  cbt_server* other = NULL;
  EXPECT_FAILS(CBT_FAILED_PRECONDITION, "", cbt_server_start(service, &options, &other, &error));
  EXPECT(other == NULL);
  EXPECT_FAILS(CBT_INVALID_ARGUMENT, "a day", cbt_server_shutdown(server, UINT64_MAX, &error));
  EXPECT_OK(cbt_server_shutdown(server, 1000, &error));
  EXPECT_OK(cbt_server_shutdown(server, 0, &error));
  EXPECT_EQ(cbt_server_open_streams(server), 0);
  cbt_client_options wanted = delta_at(address);
  wanted.retry_ms = CBT_NO_RETRY;
  cbt_client* const client = client_of(&wanted);
  cbt_cursor* cursor = NULL;
  EXPECT_FAILS(CBT_UNAVAILABLE, "", cbt_client_open(client, &cursor, &error));
  cbt_client_free(client);
  done(&it, service, server);
}

// --- Cancelling

static void* expect_cancelled(void* client) {
  cbt_cursor* cursor = NULL;
  EXPECT_FAILS(CBT_CANCELLED, "", cbt_client_open((cbt_client*)client, &cursor, &error));
  EXPECT(cursor == NULL);
  return NULL;
}

static void cancelling_ends_what_waits(void) {
  // A server that is not there.
  cbt_client_options options = delta_at(socket_named("none"));
  cbt_client* client = client_of(&options);
  pthread_t thread;
  EXPECT(pthread_create(&thread, NULL, expect_cancelled, client) == 0);
  usleep(20000);
  cbt_client_cancel(client);
  pthread_join(thread, NULL);
  cbt_client_free(client);
  // A provider that takes long: the server cancels that call, too.
  storage it = {.hold = 1};
  cbt_service* const service = service_of(&it);
  cbt_server* const server = serve(service, socket_named("hold"));
  options.address = cbt_server_address_borrowed(server);
  client = client_of(&options);
  EXPECT(pthread_create(&thread, NULL, expect_cancelled, client) == 0);
  while (!it.held) usleep(100);
  cbt_client_cancel(client);
  pthread_join(thread, NULL);
  cbt_client_free(client);
  while (cbt_server_open_streams(server) != 0) usleep(100);
  // In the middle of a stream.
  it.hold = 0;
  client = client_of(&options);
  cbt_cursor* const cursor = open_client(client);
  cbt_client_cancel(client);
  cbt_batch batch;
  cbt_code code;
  do {
    code = cbt_cursor_next(cursor, &batch, NULL);
    EXPECT(!batch.complete);
  } while (code == CBT_OK);
  EXPECT_EQ(code, CBT_CANCELLED);
  cbt_cursor_free(cursor);
  cbt_client_free(client);
  done(&it, service, server);
}

// --- Relays

typedef struct log_lines {
  atomic_int lines;
  atomic_int released;
} log_lines;

static void count_line(void* user, int32_t level, const char* event, const cbt_metadata* fields,
                       uint64_t count) {
  EXPECT(level >= CBT_LOG_WARNING && level <= CBT_LOG_ERROR && event[0] != 0);
  for (uint64_t i = 0; i < count; ++i) EXPECT(fields[i].key[0] != 0 && fields[i].value != NULL);
  ++((log_lines*)user)->lines;
}

static void release_lines(void* user) { ++((log_lines*)user)->released; }

static void write_file(const char* name, const char* text) {
  FILE* const file = fopen(name, "w");
  EXPECT(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0);
}

static cbt_code a_token(void* user, cbt_bytes** token, cbt_error** error) {
  const char** const texts = (const char**)user;
  return cbt_bytes_copy(*texts, strlen(*texts), token, error);
}

static cbt_code no_token(void* user, cbt_bytes** token, cbt_error** error) {
  (void)user, (void)token, (void)error;
  return CBT_OK;
}

static cbt_code failing_token(void* user, cbt_bytes** token, cbt_error** error) {
  (void)user, (void)token;
  *error = cbt_error_new(CBT_PERMISSION_DENIED, "no ticket", 9);
  return CBT_PERMISSION_DENIED;
}

static void a_relay_passes_answers_on(void) {
  storage it = {0};
  cbt_service* const service = service_of(&it);
  cbt_server* const plugin = serve(service, socket_named("plugin"));
  cbt_relay_options relay = CBT_INIT(cbt_relay_options);
  relay.plugin = cbt_server_address_borrowed(plugin);
  cbt_server_options options = CBT_INIT(cbt_server_options);
  options.listen = "127.0.0.1:0";
  log_lines lines = {0};
  options.user = &lines;
  options.log = count_line;
  options.release = release_lines;
  cbt_server* server = NULL;
  EXPECT_OK(cbt_relay_start(&relay, &options, &server, &error));
  cbt_client_options wanted = delta_at(cbt_server_address_borrowed(server));
  cbt_client* client = client_of(&wanted);
  cbt_cursor* cursor = open_client(client);
  extents found = read_all(cursor, 1024);
  expect_all(&found, 0);
  expect_proof(client, CBT_PROOF_HOLDS);
  cbt_cursor_free(cursor);
  cbt_client_free(client);
  // The plugin's text stays in the log.
  wanted.snapshot = "missing";
  client = client_of(&wanted);
  cursor = NULL;
  EXPECT_FAILS(CBT_NOT_FOUND, "", cbt_client_open(client, &cursor, &error));
  cbt_client_free(client);
  cbt_server_free(server);
  EXPECT(lines.lines > 0);
  EXPECT_EQ(lines.released, 1);
  // The Kubernetes contract asks for a token, and knows snapshots by names.
  char tokens[100], text[] = "0123456789abcdef0123456789abcdef backup prod\n";
  snprintf(tokens, sizeof(tokens), "%s/tokens", scratch);
  write_file(tokens, text);
  relay.contract = CBT_CONTRACT_KUBERNETES;
  options = (cbt_server_options)CBT_INIT(cbt_server_options);
  options.listen = socket_named("relay");
  EXPECT_FAILS(CBT_INVALID_ARGUMENT, "tokens_file",
               cbt_relay_start(&relay, &options, &server, &error));
  relay.tokens_file = tokens;
  EXPECT_OK(cbt_relay_start(&relay, &options, &server, &error));
  wanted = delta_at(cbt_server_address_borrowed(server));
  wanted.contract = CBT_CONTRACT_KUBERNETES;
  wanted.name_space = "prod";
  wanted.base = "prod/monday";
  wanted.token = "not a token";
  client = client_of(&wanted);
  EXPECT_FAILS(CBT_UNAUTHENTICATED, "", cbt_client_open(client, &cursor, &error));
  cbt_client_free(client);
  const char* token = "0123456789abcdef0123456789abcdef";
  wanted.user = &token;
  wanted.next_token = a_token;
  client = client_of(&wanted);
  cursor = open_client(client);
  found = read_all(cursor, 1024);
  expect_all(&found, 0);
  expect_proof(client, CBT_PROOF_HOLDS);
  cbt_cursor_free(cursor);
  cbt_client_free(client);
  wanted.next_token = no_token;
  client = client_of(&wanted);
  EXPECT_FAILS(CBT_INTERNAL, "no token", cbt_client_open(client, &cursor, &error));
  cbt_client_free(client);
  wanted.next_token = failing_token;
  client = client_of(&wanted);
  EXPECT_FAILS(CBT_PERMISSION_DENIED, "no ticket", cbt_client_open(client, &cursor, &error));
  cbt_client_free(client);
  cbt_server_free(server);
  // Files that would have no effect.
  relay.contract = CBT_CONTRACT_CSI;
  EXPECT_FAILS(CBT_INVALID_ARGUMENT, "tokens_file",
               cbt_relay_start(&relay, &options, &server, &error));
  relay.contract = CBT_CONTRACT_PAGED;
  EXPECT_FAILS(CBT_INVALID_ARGUMENT, "contract",
               cbt_relay_start(&relay, &options, &server, &error));
  done(&it, service, plugin);
}

// A provider whose storage is another server.
static cbt_code open_remote(void* user, const cbt_request* request, cbt_answer* answer,
                            cbt_error** error) {
  cbt_client_options options = delta_at((const char*)user);
  options.base = cbt_request_base_borrowed(request, NULL);
  options.snapshot = cbt_request_target_borrowed(request, NULL);
  cbt_client* client = NULL;
  cbt_cursor *cursor = NULL, *all = NULL;
  cbt_code code = cbt_client_new(&options, &client, error);
  if (code == CBT_OK) code = cbt_client_open(client, &cursor, error);
  cbt_client_free(client);
  if (code == CBT_OK) code = cbt_cursor_coalesce(cursor, 0, &cursor, error);
  if (code == CBT_OK) code = cbt_cursor_union(&cursor, 1, &all, error);
  if (code == CBT_OK) code = cbt_answer_set_cursor(answer, all, error);
  return code;
}

static void a_provider_proves_no_more_than_it_was_given(void) {
  storage it = {0};
  cbt_service* const service = service_of(&it);
  cbt_server* const plugin = serve(service, socket_named("behind"));
  cbt_provider provider = CBT_INIT(cbt_provider);
  provider.user = (void*)(uintptr_t)cbt_server_address_borrowed(plugin);
  provider.open = open_remote;
  cbt_service* front_service = NULL;
  EXPECT_OK(cbt_service_new(&provider, NULL, &front_service, &error));
  cbt_server* const front = serve(front_service, socket_named("front"));
  cbt_service_free(front_service);
  cbt_client_options options = delta_at(cbt_server_address_borrowed(front));
  for (it.may_change = 0; it.may_change < 2; ++it.may_change) {
    cbt_client* const client = client_of(&options);
    cbt_cursor* const cursor = open_client(client);
    extents found = read_all(cursor, 1024);
    expect_all(&found, 0);
    // What may have changed is proven from here on only.
    expect_proof(client, it.may_change ? CBT_PROOF_HOLDS_FROM_RELAY : CBT_PROOF_HOLDS);
    cbt_cursor_free(cursor);
    cbt_client_free(client);
  }
  cbt_server_free(front);
  done(&it, service, plugin);
}

// --- Arguments

static void bad_arguments_are_refused(void) {
  storage it = {0};
  cbt_service* const service = service_of(&it);
  log_lines lines = {0};
  cbt_server_options options = CBT_INIT(cbt_server_options);
  options.user = &lines;
  options.release = release_lines;
  cbt_relay_options relay = CBT_INIT(cbt_relay_options);
  cbt_server* server = NULL;
  EXPECT_FAILS(CBT_INVALID_ARGUMENT, "server: NULL",
               cbt_server_start(service, &options, NULL, &error));
  EXPECT_FAILS(CBT_INVALID_ARGUMENT, "service: NULL",
               cbt_server_start(NULL, &options, &server, &error));
  EXPECT_FAILS(CBT_INVALID_ARGUMENT, "options: NULL",
               cbt_server_start(service, NULL, &server, &error));
  EXPECT_FAILS(CBT_INVALID_ARGUMENT, "listen: NULL",
               cbt_server_start(service, &options, &server, &error));
  EXPECT_FAILS(CBT_INVALID_ARGUMENT, "relay: NULL",
               cbt_relay_start(NULL, &options, &server, &error));
  options.listen = socket_named("never");
  EXPECT_FAILS(CBT_INVALID_ARGUMENT, "plugin: NULL",
               cbt_relay_start(&relay, &options, &server, &error));
  // A size in the middle of a pointer.
  options.struct_size = 12;
  EXPECT_FAILS(CBT_INVALID_ARGUMENT, "struct_size",
               cbt_server_start(service, &options, &server, &error));
  options.struct_size = sizeof(options);
  options.threads = 1025;
  EXPECT_FAILS(CBT_INVALID_ARGUMENT, "threads",
               cbt_server_start(service, &options, &server, &error));
  options.threads = UINT64_MAX;
  EXPECT_FAILS(CBT_INVALID_ARGUMENT, "threads",
               cbt_server_start(service, &options, &server, &error));
  options.threads = 0;
  options.stall_ms = UINT64_MAX;
  EXPECT_FAILS(CBT_INVALID_ARGUMENT, "stall_ms",
               cbt_server_start(service, &options, &server, &error));
  options.stall_ms = 0;
  options.log_level = 5;
  EXPECT_FAILS(CBT_INVALID_ARGUMENT, "log_level",
               cbt_server_start(service, &options, &server, &error));
  options.log_level = 0;
  options.tls_key_file = "/nonexistent";
  EXPECT_FAILS(CBT_INVALID_ARGUMENT, "", cbt_server_start(service, &options, &server, &error));
  EXPECT(server == NULL);
  EXPECT_EQ(lines.released, 0);
  EXPECT(cbt_server_address_borrowed(NULL) == NULL);
  EXPECT_EQ(cbt_server_open_streams(NULL), 0);
  EXPECT_FAILS(CBT_INVALID_ARGUMENT, "server: NULL", cbt_server_shutdown(NULL, 0, &error));
  cbt_server_free(NULL);

  resumed about = {0};
  cbt_client* client = NULL;
  cbt_cursor* cursor = NULL;
  cbt_client_options wanted = CBT_INIT(cbt_client_options);
  wanted.user = &about;
  wanted.release = note_release;
  EXPECT_FAILS(CBT_INVALID_ARGUMENT, "client: NULL", cbt_client_new(&wanted, NULL, &error));
  EXPECT_FAILS(CBT_INVALID_ARGUMENT, "options: NULL", cbt_client_new(NULL, &client, &error));
  EXPECT_FAILS(CBT_INVALID_ARGUMENT, "address: NULL", cbt_client_new(&wanted, &client, &error));
  wanted.address = "";
  EXPECT_FAILS(CBT_INVALID_ARGUMENT, "snapshot: NULL", cbt_client_new(&wanted, &client, &error));
  wanted.snapshot = "s";
  wanted.contract = 4;
  EXPECT_FAILS(CBT_INVALID_ARGUMENT, "contract", cbt_client_new(&wanted, &client, &error));
  wanted.contract = 0;
  wanted.no_message = -1;
  EXPECT_FAILS(CBT_INVALID_ARGUMENT, "no_message", cbt_client_new(&wanted, &client, &error));
  wanted.no_message = 0;
  wanted.max_results = UINT32_MAX;
  EXPECT_FAILS(CBT_INVALID_ARGUMENT, "max_results", cbt_client_new(&wanted, &client, &error));
  wanted.max_results = 0;
  wanted.secret_count = 1;
  EXPECT_FAILS(CBT_INVALID_ARGUMENT, "secrets: NULL", cbt_client_new(&wanted, &client, &error));
  const cbt_metadata half = {"key", NULL};
  wanted.secrets = &half;
  EXPECT_FAILS(CBT_INVALID_ARGUMENT, "secrets: NULL", cbt_client_new(&wanted, &client, &error));
  wanted.secret_count = 0;
  const struct {
    uint64_t* member;
    const char* name;
  } kTimes[] = {{&wanted.timeout_ms, "timeout_ms"},
                {&wanted.stall_ms, "stall_ms"},
                {&wanted.retry_ms, "retry_ms"}};
  for (size_t i = 0; i < 3; ++i) {
    *kTimes[i].member = UINT64_MAX - 1;
    EXPECT_FAILS(CBT_INVALID_ARGUMENT, kTimes[i].name, cbt_client_new(&wanted, &client, &error));
    *kTimes[i].member = 0;
  }
  EXPECT(client == NULL);
  EXPECT_EQ(about.released, 0);
  client = client_of(&wanted);
  EXPECT_FAILS(CBT_INVALID_ARGUMENT, "", cbt_client_open(client, &cursor, &error));
  EXPECT_FAILS(CBT_INVALID_ARGUMENT, "cursor: NULL", cbt_client_open(client, NULL, &error));
  EXPECT_FAILS(CBT_INVALID_ARGUMENT, "client: NULL", cbt_client_open(NULL, &cursor, &error));
  EXPECT_FAILS(CBT_INVALID_ARGUMENT, "proof: NULL", cbt_client_proof(client, NULL, &error));
  EXPECT_FAILS(CBT_INVALID_ARGUMENT, "info: NULL", cbt_client_get_info(client, NULL, &error));
  cbt_client_free(client);
  EXPECT_EQ(about.released, 1);
  EXPECT(strcmp(cbt_client_version_borrowed(NULL), "") == 0);
  cbt_client_cancel(NULL);
  cbt_client_free(NULL);
  cbt_service_free(service);
  cbt_bytes_free(it.bits);
}

// --- fork()

static void a_child_leaves_its_parents_alone(void) {
  storage it = {0};
  cbt_service* const service = service_of(&it);
  cbt_server* const server = serve(service, socket_named("parent"));
  cbt_client_options options = delta_at(cbt_server_address_borrowed(server));
  options.max_results = 10;
  cbt_client* const client = client_of(&options);
  cbt_cursor* const cursor = open_client(client);
  extents found = {0};
  cbt_batch batch;
  EXPECT_OK(cbt_cursor_next(cursor, &batch, &error));
  for (uint64_t i = 0; i < batch.count; ++i) {
    add_extent(&found, batch.offsets[i], batch.lengths[i]);
  }
  fflush(NULL);
  const pid_t child = fork();
  EXPECT(child >= 0);
  if (child == 0) {
    alarm(100);
    EXPECT_FAILS(CBT_FAILED_PRECONDITION, "fork", cbt_cursor_next(cursor, &batch, &error));
    EXPECT_FAILS(CBT_FAILED_PRECONDITION, "fork", cbt_cursor_seek(cursor, 0, &error));
    EXPECT_FAILS(CBT_FAILED_PRECONDITION, "fork", cbt_server_shutdown(server, 0, &error));
    EXPECT_EQ(cbt_server_open_streams(server), 0);
    cbt_cursor_free(cursor);
    cbt_client_free(client);
    cbt_server_free(server);
    // The parent's server still has its address.
    read_a_server((void*)(uintptr_t)options.address);
    storage own = {0};
    cbt_service* const own_service = service_of(&own);
    cbt_server* const own_server = serve(own_service, socket_named("child"));
    read_a_server((void*)(uintptr_t)cbt_server_address_borrowed(own_server));
    done(&own, own_service, own_server);
    cbt_bytes_free(it.bits);
    clear_extents(&found);
    cbt_service_free(service);
    // A tool would find what only the stacks of the parent's threads refer to.
    if (leaks_are_looked_for) raise(SIGKILL);
    // With all that runs at the end of a program.
    exit(0);
  }
  int status = 0;
  EXPECT(waitpid(child, &status, 0) == child);
  EXPECT(leaks_are_looked_for ? WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL : status == 0);
  do {
    EXPECT_OK(cbt_cursor_next(cursor, &batch, &error));
    for (uint64_t i = 0; i < batch.count; ++i) {
      add_extent(&found, batch.offsets[i], batch.lengths[i]);
    }
  } while (!batch.complete);
  expect_all(&found, 0);
  expect_proof(client, CBT_PROOF_HOLDS);
  cbt_client_info info = CBT_INIT(cbt_client_info);
  EXPECT_OK(cbt_client_get_info(client, &info, &error));
  EXPECT_EQ(info.resumes, 0);
  cbt_cursor_free(cursor);
  cbt_client_free(client);
  done(&it, service, server);
}

// With any argument: a tool looks for leaks.
int main(int argc, char** argv) {
  (void)argv;
  leaks_are_looked_for = argc > 1;
  // Addresses of sockets are short.
  snprintf(scratch, sizeof(scratch), "/tmp/cbt-remote-XXXXXX");
  EXPECT(mkdtemp(scratch) != NULL);
  a_client_reads_what_a_server_serves();
  errors_of_a_provider_reach_the_client();
  a_client_resumes_after_a_cut();
  another_client_continues();
  many_clients_read_one_server();
  a_server_drains();
  cancelling_ends_what_waits();
  a_relay_passes_answers_on();
  a_provider_proves_no_more_than_it_was_given();
  bad_arguments_are_refused();
  a_child_leaves_its_parents_alone();
  char remove_it[100];
  snprintf(remove_it, sizeof(remove_it), "rm -r %s", scratch);
  EXPECT(system(remove_it) == 0);
  return 0;
}
