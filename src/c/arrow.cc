#include "cbt/c/arrow.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "c/handles.h"
#include "cbt/batch.h"
#include "cbt/cursor.h"

namespace cbt::c {
namespace {

constexpr uint64_t kDefaultRows = 65536;
constexpr uint64_t kMaxArrowRows = uint64_t{1} << 20;
constexpr const char* kColumns[] = {"byte_offset", "size_bytes"};

// --- Schemas

struct SchemaTree {
  std::array<ArrowSchema, 2> columns = {};
  std::array<ArrowSchema*, 2> children = {};
};

void ReleaseColumn(ArrowSchema* schema) { schema->release = nullptr; }

void ReleaseSchema(ArrowSchema* schema) {
  for (int64_t i = 0; i < schema->n_children; ++i) {
    ArrowSchema* const column = schema->children[i];
    if (column->release != nullptr) column->release(column);
  }
  delete static_cast<SchemaTree*>(schema->private_data);
  schema->release = nullptr;
}

void WriteSchema(ArrowSchema* out) {
  auto tree = std::make_unique<SchemaTree>();
  for (size_t i = 0; i < 2; ++i) {
    // Names and formats are static: a column that is moved away needs nothing.
    tree->columns[i].format = "L";
    tree->columns[i].name = kColumns[i];
    tree->columns[i].release = ReleaseColumn;
    tree->children[i] = &tree->columns[i];
  }
  *out = ArrowSchema{};
  out->format = "+s";
  out->name = "";
  out->n_children = 2;
  out->children = tree->children.data();
  out->release = ReleaseSchema;
  out->private_data = tree.release();
}

// --- Arrays

struct FreeMemory {
  void operator()(void* memory) const noexcept { std::free(memory); }
};
using Values = std::unique_ptr<uint64_t, FreeMemory>;

// Arrow recommends 64 bytes, for whole vectors.
Values NewValues(size_t rows) {
  constexpr size_t kAlignment = 64;
  const size_t bytes = (rows * sizeof(uint64_t) + kAlignment - 1) / kAlignment * kAlignment;
  void* const memory = std::aligned_alloc(kAlignment, std::max(bytes, kAlignment));
  if (memory == nullptr) throw std::bad_alloc();
  return Values(static_cast<uint64_t*>(memory));
}

struct Column {
  Values values;
  std::array<const void*, 2> buffers = {};  // no nulls, so no first one
};

struct ArrayTree {
  std::array<ArrowArray, 2> columns = {};
  std::array<ArrowArray*, 2> children = {};
  std::array<const void*, 1> buffers = {};
};

void ReleaseValues(ArrowArray* array) {
  delete static_cast<Column*>(array->private_data);
  array->release = nullptr;
}

void ReleaseArray(ArrowArray* array) {
  for (int64_t i = 0; i < array->n_children; ++i) {
    ArrowArray* const column = array->children[i];
    if (column->release != nullptr) column->release(column);
  }
  delete static_cast<ArrayTree*>(array->private_data);
  array->release = nullptr;
}

// Everything is allocated before anything is given away.
void WriteArray(std::array<Values, 2> values, size_t rows, ArrowArray* out) {
  auto tree = std::make_unique<ArrayTree>();
  std::array<std::unique_ptr<Column>, 2> columns = {std::make_unique<Column>(),
                                                    std::make_unique<Column>()};
  for (size_t i = 0; i < 2; ++i) {
    columns[i]->values = std::move(values[i]);
    columns[i]->buffers[1] = columns[i]->values.get();
    ArrowArray& column = tree->columns[i];
    column.length = static_cast<int64_t>(rows);
    column.n_buffers = 2;
    column.buffers = columns[i]->buffers.data();
    column.release = ReleaseValues;
    column.private_data = columns[i].release();
    tree->children[i] = &column;
  }
  *out = ArrowArray{};
  out->length = static_cast<int64_t>(rows);
  out->n_buffers = 1;
  out->buffers = tree->buffers.data();
  out->n_children = 2;
  out->children = tree->children.data();
  out->release = ReleaseArray;
  out->private_data = tree.release();
}

// --- The stream

struct ArrowCursor {
  explicit ArrowCursor(std::unique_ptr<ExtentCursor> made, size_t most_rows)
      : cursor(std::move(made)), rows(most_rows), batch(std::min(most_rows, kBatch)) {}

  static constexpr size_t kBatch = ExtentBatch::kDefaultCapacity;

  const std::unique_ptr<ExtentCursor> cursor;
  const size_t rows;
  ExtentBatch batch;
  bool complete = false;
  absl::Status failure;
  std::string message;
};

int ErrnoOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return 0;
    case absl::StatusCode::kInvalidArgument:
      return EINVAL;
    case absl::StatusCode::kResourceExhausted:
      return ENOMEM;
    default:
      return EIO;
  }
}

ArrowCursor& CursorOf(ArrowArrayStream* stream) {
  return *static_cast<ArrowCursor*>(stream->private_data);
}

// Runs `body`; a failure is kept for good, and an exception is one.
template <typename Body>
int Guarded(ArrowArrayStream* stream, const Body& body) noexcept {
  ArrowCursor& cursor = CursorOf(stream);
  if (!cursor.failure.ok()) return ErrnoOf(cursor.failure);
  cbt_error* error = nullptr;
  const cbt_code code = AtBorder(&error, body);
  if (code == CBT_OK) return 0;
  cursor.failure = absl::Status(static_cast<absl::StatusCode>(code), "");
  try {
    cursor.message = cbt_error_message_borrowed(error);
  } catch (...) {
    cursor.message.clear();
  }
  cbt_error_free(error);
  return ErrnoOf(cursor.failure);
}

// The next rows, or none at the end. Extents that were found before a failure are not returned: the
// consumer would take them for an answer.
absl::Status NextRows(ArrowCursor& cursor, ArrowArray* out) {
  *out = ArrowArray{};
  if (cursor.complete) return absl::OkStatus();
  std::array<Values, 2> values = {NewValues(cursor.rows), NewValues(cursor.rows)};
  size_t rows = 0;
  while (!cursor.complete && cursor.rows - rows >= cursor.batch.capacity()) {
    absl::StatusOr<Step> step = cursor.cursor->Next(cursor.batch);
    if (!step.ok()) return step.status();
    cursor.complete = *step == Step::kComplete;
    std::copy_n(cursor.batch.offsets().data(), cursor.batch.size(), values[0].get() + rows);
    std::copy_n(cursor.batch.lengths().data(), cursor.batch.size(), values[1].get() + rows);
    rows += cursor.batch.size();
  }
  if (rows == 0) return absl::OkStatus();
  WriteArray(std::move(values), rows, out);
  return absl::OkStatus();
}

int GetSchema(ArrowArrayStream* stream, ArrowSchema* out) {
  return Guarded(stream, [&]() -> absl::Status {
    WriteSchema(out);
    return absl::OkStatus();
  });
}

int GetNext(ArrowArrayStream* stream, ArrowArray* out) {
  return Guarded(stream, [&] { return NextRows(CursorOf(stream), out); });
}

const char* GetLastError(ArrowArrayStream* stream) {
  const ArrowCursor& cursor = CursorOf(stream);
  return cursor.failure.ok() ? nullptr : cursor.message.c_str();
}

void ReleaseStream(ArrowArrayStream* stream) {
  delete static_cast<ArrowCursor*>(stream->private_data);
  stream->release = nullptr;
}

}  // namespace
}  // namespace cbt::c

cbt_code cbt_cursor_export_arrow(cbt_cursor* cursor, uint64_t rows, struct ArrowArrayStream* out,
                                 cbt_error** error) noexcept {
  return cbt::c::AtBorder(error, [&]() -> absl::Status {
    if (absl::Status status = cbt::c::Check(cursor, "cursor"); !status.ok()) return status;
    const bool waiting = cursor->waiting() != 0;
    const bool adrift = cursor->adrift;
    cbt::c::Proofs proofs;  // an Arrow stream carries none
    absl::StatusOr<std::unique_ptr<cbt::ExtentCursor>> taken =
        cbt::c::Consume(cursor, "cursor", proofs);
    if (!taken.ok()) return taken.status();
    if (out == nullptr) return cbt::c::IsNull("out");
    *out = ArrowArrayStream{};
    if (rows > cbt::c::kMaxArrowRows) {
      return absl::InvalidArgumentError("rows: expected at most 2^20");
    }
    if (waiting) {
      return absl::FailedPreconditionError(
          "cursor: extents wait in its batch; seek it before it is exported");
    }
    if (adrift) return cbt::c::IsAdrift("cursor");
    const uint64_t most = rows == 0 ? cbt::c::kDefaultRows : rows;
    out->private_data = new cbt::c::ArrowCursor(*std::move(taken), static_cast<size_t>(most));
    out->get_schema = cbt::c::GetSchema;
    out->get_next = cbt::c::GetNext;
    out->get_last_error = cbt::c::GetLastError;
    out->release = cbt::c::ReleaseStream;
    return absl::OkStatus();
  });
}
