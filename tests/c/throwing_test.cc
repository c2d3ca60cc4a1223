// Callbacks of a C++ program that throw: nothing crosses the border, and the program's own state of
// exceptions is what it was.
#include <cbt/c/cbt.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <stdexcept>
#include <string>

namespace {

int mode = 0;

void Expect(bool condition, const char* what, cbt_error* error = nullptr) {
  if (condition) return;
  std::fprintf(stderr, "mode %d: %s: %s\n", mode, what, cbt_error_message_borrowed(error));
  std::exit(1);
}

struct Foreign {};

void Throw() {
  switch (mode) {
    case 1:
      throw std::runtime_error("of the callback");
    case 2:
      throw std::bad_alloc();
    case 3:
      throw 7;
    case 4:
      throw Foreign();
    case 5:
      throw std::string(1000, 'x');
    default:
      break;
  }
}

cbt_code Seek(void*, uint64_t, cbt_error**) {
  Throw();
  return CBT_OK;
}

cbt_code Next(void*, uint64_t* offsets, uint64_t* lengths, uint64_t, uint64_t* count,
              uint64_t* covered, cbt_error**) {
  offsets[0] = *covered;
  lengths[0] = 1;
  *count = 1;
  *covered = 100;
  Throw();
  return CBT_OK;
}

void ReleaseAndThrow(void*) { Throw(); }

cbt_cursor* MakeCursor() {
  cbt_cursor_callbacks callbacks = CBT_INIT(cbt_cursor_callbacks);
  callbacks.seek = Seek;
  callbacks.next = Next;
  callbacks.release = ReleaseAndThrow;
  const cbt_geometry volume = {100, 1};
  cbt_cursor* cursor = nullptr;
  cbt_error* error = nullptr;
  Expect(cbt_cursor_from_callbacks(&callbacks, &volume, &cursor, &error) == CBT_OK, "made", error);
  return cursor;
}

cbt_code Open(void*, const cbt_request*, cbt_answer* answer, cbt_error** error) {
  const cbt_code code = cbt_answer_set_cursor(answer, MakeCursor(), error);
  Throw();
  return code;
}

cbt_code ExpectedCode() { return mode == 2 ? CBT_RESOURCE_EXHAUSTED : CBT_INTERNAL; }

void OfCursors() {
  cbt_error* error = nullptr;
  cbt_batch batch;
  cbt_cursor* const cursor = MakeCursor();
  Expect(cbt_cursor_next(cursor, &batch, &error) == ExpectedCode(), "next", error);
  Expect(batch.count == 0 && batch.complete == 0, "no extents after an exception");
  cbt_error_free(error);
  // Not forgotten: a second call must not look like an answer.
  const int kept = mode;
  mode = 0;
  Expect(cbt_cursor_next(cursor, &batch, &error) != CBT_OK, "the failure stays");
  cbt_error_free(error);
  Expect(cbt_cursor_seek(cursor, 0, &error) == CBT_OK, "seek", error);
  Expect(cbt_cursor_next(cursor, &batch, &error) == CBT_OK && batch.count == 1, "again", error);
  mode = kept;
  Expect(cbt_cursor_seek(cursor, 0, &error) != CBT_OK, "seek throws");
  cbt_error_free(error);
  cbt_cursor_free(cursor);
}

void OfProviders() {
  cbt_provider provider = CBT_INIT(cbt_provider);
  provider.open = Open;
  provider.release = ReleaseAndThrow;
  cbt_error* error = nullptr;
  cbt_service* service = nullptr;
  Expect(cbt_service_new(&provider, nullptr, &service, &error) == CBT_OK, "service", error);
  cbt_stream* stream = nullptr;
  static const char kRequest[] =
      "\x0a\x01"
      "a";
  Expect(cbt_stream_open(service, "/csi.v1.SnapshotMetadata/GetMetadataAllocated", kRequest, 3,
                         nullptr, &stream, &error) == CBT_OK,
         "stream", error);
  cbt_message message;
  for (int i = 0; i < 2; ++i) {
    Expect(cbt_stream_next(stream, &message, &error) == ExpectedCode(), "stream fails", error);
    Expect(message.state == 0 && message.size == 0, "no message");
    cbt_error_free(error);
  }
  cbt_stream_free(stream);
  cbt_service_free(service);
}

void OfOwners() {
  cbt_bytes* bytes = nullptr;
  Expect(cbt_bytes_own("x", 1, nullptr, ReleaseAndThrow, &bytes, nullptr) == CBT_OK, "own");
  cbt_bytes_free(bytes);
}

void OfArrow() {
  struct ArrowArrayStream stream;
  Expect(cbt_cursor_export_arrow(MakeCursor(), 0, &stream, nullptr) == CBT_OK, "export");
  struct ArrowArray array;
  Expect(stream.get_next(&stream, &array) != 0, "get_next fails");
  Expect(stream.get_last_error(&stream) != nullptr, "says why");
  stream.release(&stream);
}

}  // namespace

int main() {
  for (mode = 1; mode <= 5; ++mode) {
    OfCursors();
    OfProviders();
    OfOwners();
    OfArrow();
    Expect(std::uncaught_exceptions() == 0, "an exception is in flight");
    Expect(std::current_exception() == nullptr, "an exception is handled");
  }
  return 0;
}
