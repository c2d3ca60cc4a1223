#include "source/nbd/nbd_data.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cbt/bridge/nbd_extents.h"
#include "cbt/units.h"

namespace cbt {
namespace {

std::string ContextOf(const NbdExport::State& state) {
  const std::string allocation(NbdExtents::kAllocation);
  const std::vector<std::string>& all = state.contexts();
  return std::find(all.begin(), all.end(), allocation) == all.end() ? "" : allocation;
}

}  // namespace

bool IsNbdUri(std::string_view text) {
  for (const std::string_view scheme : {"nbd://", "nbd+unix://", "nbds://", "nbds+unix://"}) {
    if (text.substr(0, scheme.size()) == scheme) return true;
  }
  return false;
}

NbdData::NbdData(std::shared_ptr<NbdExport::State> state, size_t connections)
    : state_(std::move(state)),
      connections_(connections),
      context_(ContextOf(*state_)),
      broken_(absl::UnavailableError(absl::StrCat(label(), ": the connection broke"))),
      zeros_(state_->size()) {
  idle_.reserve(connections_);
}

absl::StatusOr<std::shared_ptr<NbdData>> NbdData::Open(const std::string& uri,
                                                       const NbdExportOptions& options,
                                                       size_t connections) {
  if (connections == 0) return absl::InvalidArgumentError("nbd: no connections");
  absl::StatusOr<std::shared_ptr<NbdExport::State>> state =
      NbdExport::State::Open(uri, options, NbdNeeds::kData);
  if (!state.ok()) return state.status();
  return std::shared_ptr<NbdData>(new NbdData(*std::move(state), connections));
}

absl::StatusOr<std::unique_ptr<ExtentCursor>> NbdData::Allocated() {
  if (context_.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat(label(), ": the server does not say what is allocated"));
  }
  {
    // The cursor takes it over, and gives it back.
    const std::lock_guard lock(mutex_);
    if (!failure_.ok()) return failure_;
    if (!idle_.empty()) {
      state_->GiveBack(context_, std::move(idle_.back()));
      idle_.pop_back();
      --open_;
    }
  }
  NbdOptions options;
  options.context = context_;
  return MakeStateCursor(state_, options);
}

absl::StatusOr<NbdData::Connection> NbdData::Take() {
  std::unique_lock lock(mutex_);
  returned_.wait(lock, [&] { return !failure_.ok() || !idle_.empty() || open_ < most_; });
  if (!failure_.ok()) return failure_;
  if (!idle_.empty()) {
    Connection connection = std::move(idle_.back());
    idle_.pop_back();
    return connection;
  }
  const bool first = open_++ == 0;
  lock.unlock();
  absl::StatusOr<Connection> connection = out_of_memory_;
  try {
    connection = state_->Start(context_);
  } catch (const std::exception&) {
    // As it is.
  }
  if (!connection.ok()) {
    Forget(connection.status());
    return connection;
  }
  lock.lock();
  if (first && (*connection)->HasManyClients()) most_ = connections_;
  returned_.notify_all();
  return connection;
}

void NbdData::Return(Connection connection, const absl::Status& status) noexcept {
  if (!connection->usable()) {
    // Before the caller's memory goes.
    connection.reset();
    return Forget(status.ok() ? broken_ : status);
  }
  const std::lock_guard lock(mutex_);
  idle_.push_back(std::move(connection));  // there is room
  returned_.notify_all();
}

// A connection that is gone.
void NbdData::Forget(const absl::Status& why) noexcept {
  const std::lock_guard lock(mutex_);
  --open_;
  failure_.Update(why);
  returned_.notify_all();
}

template <typename Use>
absl::Status NbdData::With(Use use) {
  absl::StatusOr<Connection> connection = Take();
  if (!connection.ok()) return connection.status();
  absl::Status status;
  try {
    status = use(**connection);
  } catch (const std::exception&) {
    // Others wait for it. It can't be used: replies may still come, into memory that is gone.
    connection->reset();
    Forget(out_of_memory_);
    throw;
  }
  Return(*std::move(connection), status);
  return status;
}

absl::Status NbdData::CheckRange(uint64_t offset, uint64_t length) const {
  if (offset <= size() && length <= size() - offset) return absl::OkStatus();
  return absl::OutOfRangeError(
      absl::StrCat(label(), ": has ", size(), " bytes, not ", length, " more at offset ", offset));
}

absl::Status NbdData::ReadAligned(NbdConnection& connection, uint64_t offset,
                                  std::span<uint8_t> out) {
  const uint64_t block = connection.MinimumBlock();
  const uint64_t begin = AlignDown(offset, block);
  const uint64_t end = std::min(BlockCount(offset + out.size(), block) * block, size());
  if (begin == offset && end == offset + out.size()) return connection.Read(offset, out);
  std::vector<uint8_t> blocks(static_cast<size_t>(end - begin));
  if (absl::Status read = connection.Read(begin, blocks); !read.ok()) return read;
  std::memcpy(out.data(), blocks.data() + (offset - begin), out.size());
  return absl::OkStatus();
}

absl::Status NbdData::Read(uint64_t offset, std::span<uint8_t> out) {
  if (absl::Status range = CheckRange(offset, out.size()); !range.ok()) return range;
  if (out.empty()) return absl::OkStatus();
  return With([&](NbdConnection& connection) { return ReadAligned(connection, offset, out); });
}

absl::Status NbdData::ReadData(uint64_t offset, std::span<uint8_t> out) {
  if (context_.empty() || out.empty()) return Read(offset, out);
  if (absl::Status range = CheckRange(offset, out.size()); !range.ok()) return range;
  return With([&](NbdConnection& connection) -> absl::Status {
    uint64_t done = offset;
    const auto zero_until = [&](uint64_t end) {
      std::memset(out.data() + (done - offset), 0, static_cast<size_t>(end - done));
    };
    for (const Extent part : zeros_.DataIn({offset, out.size()}, connection)) {
      zero_until(part.offset);
      const std::span<uint8_t> room =
          out.subspan(static_cast<size_t>(part.offset - offset), static_cast<size_t>(part.length));
      if (absl::Status read = ReadAligned(connection, part.offset, room); !read.ok()) return read;
      done = part.end();
    }
    zero_until(offset + out.size());
    return absl::OkStatus();
  });
}

// A part of one block: the rest of it stays.
absl::Status NbdData::WriteEdge(NbdConnection& connection, uint64_t offset,
                                std::span<const uint8_t> bytes) {
  const uint64_t block = connection.MinimumBlock();
  const uint64_t begin = AlignDown(offset, block);
  std::vector<uint8_t> whole(static_cast<size_t>(std::min(block, size() - begin)));
  const std::lock_guard lock(edges_);
  if (absl::Status read = connection.Read(begin, whole); !read.ok()) return read;
  std::memcpy(whole.data() + (offset - begin), bytes.data(), bytes.size());
  return connection.Write(begin, whole);
}

absl::Status NbdData::Write(uint64_t offset, std::span<const uint8_t> bytes) {
  if (absl::Status range = CheckRange(offset, bytes.size()); !range.ok()) return range;
  if (bytes.empty()) return absl::OkStatus();
  return With([&](NbdConnection& connection) -> absl::Status {
    const uint64_t block = connection.MinimumBlock();
    while (!bytes.empty()) {
      const uint64_t before = offset % block;
      const uint64_t end = offset + bytes.size();
      uint64_t length = end - offset;
      // The export may end within a block.
      const bool whole_end = end % block == 0 || end == size();
      if (before != 0 || (length < block && !whole_end)) {
        length = std::min(length, block - before);
      } else if (!whole_end) {
        length = AlignDown(length, block);
      }
      const auto part = bytes.first(static_cast<size_t>(length));
      const bool aligned =
          before == 0 && ((offset + length) % block == 0 || offset + length == size());
      absl::Status written =
          aligned ? connection.Write(offset, part) : WriteEdge(connection, offset, part);
      if (!written.ok()) return written;
      bytes = bytes.subspan(part.size());
      offset += length;
    }
    return absl::OkStatus();
  });
}

absl::Status NbdData::WriteZeros(Extent extent) {
  if (absl::Status range = CheckRange(extent.offset, extent.length); !range.ok()) return range;
  if (extent.length == 0) return absl::OkStatus();
  uint64_t block = 1;
  const absl::Status zeroed = With([&](NbdConnection& connection) -> absl::Status {
    block = connection.MinimumBlock();
    const uint64_t begin = AlignDown(extent.offset + block - 1, block);
    const uint64_t end = extent.end() == size() ? size() : AlignDown(extent.end(), block);
    if (begin >= end) return absl::OkStatus();
    return connection.WriteZeros(begin, end - begin);
  });
  if (!zeroed.ok() || block == 1) return zeroed;
  // The parts of blocks at both ends.
  const uint64_t begin = std::min(AlignDown(extent.offset + block - 1, block), extent.end());
  const uint64_t end =
      std::max(extent.end() == size() ? size() : AlignDown(extent.end(), block), begin);
  const std::vector<uint8_t> zeros(static_cast<size_t>(block));
  absl::Status done =
      Write(extent.offset, {zeros.data(), static_cast<size_t>(begin - extent.offset)});
  if (done.ok()) done = Write(end, {zeros.data(), static_cast<size_t>(extent.end() - end)});
  return done;
}

absl::Status NbdData::Flush() {
  return With([](NbdConnection& connection) { return connection.Flush(); });
}

absl::Status NbdData::CheckWritable() {
  bool read_only = false;
  const absl::Status asked = With([&](const NbdConnection& connection) {
    read_only = connection.IsReadOnly();
    return absl::OkStatus();
  });
  if (!asked.ok() || !read_only) return asked;
  return absl::FailedPreconditionError(absl::StrCat(label(), ": the export is read-only"));
}

namespace {

class NbdInput final : public CopyInput {
 public:
  NbdInput(std::shared_ptr<NbdData> data, NbdReads reads) : data_(std::move(data)), reads_(reads) {}
  uint64_t size() const override { return data_->size(); }
  absl::Status Read(uint64_t offset, std::span<uint8_t> out) const override {
    return reads_ == NbdReads::kAll ? data_->Read(offset, out) : data_->ReadData(offset, out);
  }

 private:
  const std::shared_ptr<NbdData> data_;
  const NbdReads reads_;
};

class NbdOutput final : public CopyOutput {
 public:
  explicit NbdOutput(std::shared_ptr<NbdData> data) : data_(std::move(data)) {}
  absl::Status Write(uint64_t offset, std::span<const uint8_t> bytes) override {
    return data_->Write(offset, bytes);
  }
  absl::Status WriteZeros(Extent extent) override { return data_->WriteZeros(extent); }
  absl::Status Read(uint64_t offset, std::span<uint8_t> out) override {
    return data_->Read(offset, out);
  }
  absl::Status Sync() override { return data_->Flush(); }

 private:
  const std::shared_ptr<NbdData> data_;
};

}  // namespace

std::unique_ptr<CopyInput> MakeCopyInput(std::shared_ptr<NbdData> data, NbdReads reads) {
  return std::make_unique<NbdInput>(std::move(data), reads);
}

std::unique_ptr<CopyOutput> MakeCopyOutput(std::shared_ptr<NbdData> data) {
  return std::make_unique<NbdOutput>(std::move(data));
}

}  // namespace cbt
