#include "programs/driver/host/fuse_disk.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/fuse.h>
#include <poll.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/file_io.h"
#include "programs/driver/host/thread.h"

namespace cbt::driver {
namespace {

constexpr uint64_t kFileNode = 2;
constexpr uint32_t kMaxBytes = 1 << 20;  // in a request
constexpr size_t kBufferBytes = kMaxBytes + 4096;
constexpr size_t kWorkers = 4;
constexpr uint32_t kOldestMinor = 31;
constexpr uint64_t kForEver = uint64_t{1} << 30;  // seconds that attributes stay valid
constexpr std::chrono::seconds kNegotiationTime{10};

// Linux 6.9, newer than the header of Debian 12.
constexpr uint32_t kResendMinor = 40;
constexpr int32_t kNotifyResend = 7;
constexpr uint32_t kHasResend2 = 1U << (39 - 32);  // in flags2

uint64_t Unit(uint64_t bytes) noexcept { return bytes / 512 + (bytes % 512 != 0 ? 1 : 0); }

fuse_attr AttributesOf(uint64_t node, uint64_t size, bool read_only) noexcept {
  fuse_attr attributes = {};
  attributes.ino = node;
  attributes.nlink = 1;
  attributes.blksize = 4096;
  if (node == kFileNode) {
    attributes.size = size;
    attributes.blocks = Unit(size);
    attributes.mode = S_IFREG | (read_only ? 0400U : 0600U);
  } else {
    attributes.mode = S_IFDIR | 0500U;
  }
  return attributes;
}

template <typename T>
std::span<const uint8_t> BytesOf(const T& value) noexcept {
  return {reinterpret_cast<const uint8_t*>(&value), sizeof(value)};
}

// "." , ".." and the file; returns the length. The directory fits into every buffer.
std::array<uint8_t, 3 * 32> Entries(uint64_t offset, size_t& length) noexcept {
  constexpr std::array<std::pair<std::string_view, uint64_t>, 3> kNames = {
      {{".", FUSE_ROOT_ID}, {"..", FUSE_ROOT_ID}, {FuseDisk::kFileName, kFileNode}}};
  std::array<uint8_t, 3 * 32> bytes = {};
  length = 0;
  for (uint64_t i = offset; i < kNames.size(); ++i) {
    const auto& [name, node] = kNames[i];
    const fuse_dirent entry = {
        .ino = node,
        .off = i + 1,
        .namelen = static_cast<uint32_t>(name.size()),
        .type = node == kFileNode ? uint32_t{S_IFREG} >> 12 : uint32_t{S_IFDIR} >> 12};
    std::memcpy(&bytes[length], &entry, sizeof(entry));
    std::memcpy(&bytes[length + sizeof(entry)], name.data(), name.size());
    length += FUSE_DIRENT_ALIGN(sizeof(entry) + name.size());
  }
  return bytes;
}

}  // namespace

struct FuseDisk::Worker {
  Worker(const std::string& socket, const StopSignal& stop)
      : server(socket, stop), buffer(kBufferBytes) {}

  template <typename T>
  T Read(size_t at) const noexcept {
    T value;
    std::memcpy(&value, &buffer[at], sizeof(value));
    return value;
  }

  NbdConnection server;
  std::vector<uint8_t> buffer;
};

absl::StatusOr<std::unique_ptr<FuseDisk>> FuseDisk::Mount(const std::string& directory,
                                                          const std::string& socket, uint64_t size,
                                                          bool read_only) {
  OwnedDescriptor connection(OpenFile("/dev/fuse", O_RDWR | O_CLOEXEC | O_NONBLOCK));
  if (!connection.has_value()) {
    return absl::FailedPreconditionError("/dev/fuse: " +
                                         std::string(FileError("", errno).message()));
  }
  const std::string options =
      absl::StrCat("fd=", connection.number(), ",rootmode=40000,user_id=", ::geteuid(),
                   ",group_id=", ::getegid(), ",max_read=", kMaxBytes);
  const unsigned long flags = MS_NOSUID | MS_NODEV | MS_NOEXEC | (read_only ? MS_RDONLY : 0);
  if (::mount("cbt", directory.c_str(), "fuse.cbt", flags, options.c_str()) != 0) {
    return FileError(directory, errno);
  }
  std::unique_ptr<FuseDisk> disk(
      new FuseDisk(std::move(connection), {.size = size, .read_only = read_only}, socket));
  if (absl::Status ready = disk->Negotiate(); !ready.ok()) {
    ::umount2(directory.c_str(), MNT_DETACH | UMOUNT_NOFOLLOW);
    return ready;
  }
  absl::Status started = disk->StartWorkers([] { return absl::OkStatus(); });
  if (!started.ok()) {
    ::umount2(directory.c_str(), MNT_DETACH | UMOUNT_NOFOLLOW);
    return started;
  }
  return disk;
}

absl::StatusOr<std::unique_ptr<FuseDisk>> FuseDisk::Adopt(const OwnedDescriptor& connection,
                                                          const FuseSession& session,
                                                          const std::string& socket) {
  if (!session.clean && !session.resends) {
    return absl::FailedPreconditionError(
        "this kernel can't repeat the requests that the volume host had not answered when it "
        "ended (Linux 6.9 can)");
  }
  OwnedDescriptor copy(::fcntl(connection.number(), F_DUPFD_CLOEXEC, 3));
  if (!copy.has_value()) return absl::ResourceExhaustedError(FileError("", errno).message());
  std::unique_ptr<FuseDisk> disk(new FuseDisk(std::move(copy), session, socket));
  disk->session_.clean = false;
  // Before any worker reads: what one of them has read must not come again.
  absl::Status started = disk->StartWorkers([&] {
    const fuse_out_header resend = {.len = sizeof(resend), .error = kNotifyResend, .unique = 0};
    if (session.resends &&
        Retry([&] { return ::write(disk->connection_.number(), &resend, sizeof(resend)); }) < 0) {
      return absl::FailedPreconditionError("the file system is gone: " +
                                           std::string(FileError("", errno).message()));
    }
    return absl::OkStatus();
  });
  if (!started.ok()) return started;
  return disk;
}

FuseDisk::FuseDisk(OwnedDescriptor connection, const FuseSession& session, std::string socket)
    : connection_(std::move(connection)),
      session_(session),
      size_(session.size),
      socket_(std::move(socket)) {}

FuseDisk::~FuseDisk() { Stop(); }

void FuseDisk::Stop() {
  stop_.Set();
  for (std::thread& worker : workers_) worker.join();
  if (!workers_.empty()) session_.clean = !abandoned_.load();
  workers_.clear();
}

bool FuseDisk::HasEnded(const OwnedDescriptor& connection) noexcept {
  pollfd ask = {.fd = connection.number(), .events = 0, .revents = 0};
  return Retry([&] { return ::poll(&ask, 1, 0); }) < 0 || (ask.revents & POLLERR) != 0;
}

absl::StatusOr<OwnedDescriptor> FuseDisk::Duplicate() const {
  OwnedDescriptor copy(::fcntl(connection_.number(), F_DUPFD_CLOEXEC, 3));
  if (!copy.has_value()) return FileError("/dev/fuse", errno);
  return copy;
}

FuseSession FuseDisk::session() const {
  FuseSession session = session_;
  session.size = size_.load();
  return session;
}

absl::Status FuseDisk::Grow(uint64_t size) {
  uint64_t before = size_.load();
  while (before < size && !size_.compare_exchange_weak(before, size)) {
  }
  struct {
    fuse_out_header header;
    fuse_notify_inval_inode_out inode;
  } notice = {};
  notice.header = {.len = sizeof(notice), .error = FUSE_NOTIFY_INVAL_INODE, .unique = 0};
  // Attributes only, no data.
  notice.inode = {.ino = kFileNode, .off = -1, .len = 0};
  // Without the inode in its cache the kernel asks anyway.
  if (Retry([&] { return ::write(connection_.number(), &notice, sizeof(notice)); }) < 0 &&
      errno != ENOENT) {
    return FileError("/dev/fuse", errno);
  }
  return absl::OkStatus();
}

absl::Status FuseDisk::Negotiate() {
  Worker worker(socket_, stop_);
  for (;;) {
    pollfd wait = {.fd = connection_.number(), .events = POLLIN, .revents = 0};
    const auto milliseconds =
        std::chrono::duration_cast<std::chrono::milliseconds>(kNegotiationTime);
    if (Retry([&] { return ::poll(&wait, 1, static_cast<int>(milliseconds.count())); }) == 0) {
      return absl::UnavailableError("the kernel's FUSE does not begin");
    }
    const ssize_t read = Retry(
        [&] { return ::read(connection_.number(), worker.buffer.data(), worker.buffer.size()); });
    if (read < 0 && errno == EAGAIN) continue;
    if (read < 0) return FileError("/dev/fuse", errno);
    const auto header = worker.Read<fuse_in_header>(0);
    if (static_cast<size_t>(read) < sizeof(header) || header.opcode != FUSE_INIT) {
      return absl::InternalError("the kernel's FUSE begins with another request than FUSE_INIT");
    }
    // Kernels before 7.36 send less; the buffer's zeros stand for the rest.
    const auto offered = worker.Read<fuse_init_in>(sizeof(header));
    fuse_init_out chosen = {};
    chosen.major = FUSE_KERNEL_VERSION;
    if (offered.major > chosen.major) {
      // It asks again, in our version.
      Reply(header.unique, 0, BytesOf(chosen));
      continue;
    }
    if (offered.major < chosen.major || offered.minor < kOldestMinor) {
      Reply(header.unique, EPROTO, {});
      return absl::FailedPreconditionError(absl::StrCat("the kernel speaks FUSE ", offered.major,
                                                        ".", offered.minor, ", expected 7.",
                                                        kOldestMinor, " or later"));
    }
    chosen.minor = FUSE_KERNEL_MINOR_VERSION;
    chosen.max_readahead = offered.max_readahead;
    chosen.flags = offered.flags & (FUSE_ASYNC_READ | FUSE_ASYNC_DIO | FUSE_BIG_WRITES |
                                    FUSE_MAX_PAGES | FUSE_INIT_EXT);
    const bool extended = (offered.flags & FUSE_INIT_EXT) != 0;
    session_.resends =
        extended && offered.minor >= kResendMinor && (offered.flags2 & kHasResend2) != 0;
    if (session_.resends) chosen.flags2 = kHasResend2;
    chosen.max_background = 64;
    chosen.congestion_threshold = 48;
    chosen.max_write = kMaxBytes;
    chosen.time_gran = 1;
    chosen.max_pages = kMaxBytes / 4096;
    Reply(header.unique, 0, BytesOf(chosen));
    return absl::OkStatus();
  }
}

template <typename Begin>
absl::Status FuseDisk::StartWorkers(Begin begin) {
  absl::Status status;
  {
    const std::lock_guard lock(starting_);
    workers_.reserve(kWorkers);
    buffers_.resize(kWorkers);
    for (auto& buffer : buffers_) buffer = std::make_unique<Worker>(socket_, stop_);
    for (size_t i = 0; i < kWorkers && status.ok(); ++i) {
      Worker& worker = *buffers_[i];
      std::thread thread;
      status = StartThread(thread, [this, &worker] { Work(worker); });
      if (status.ok()) workers_.push_back(std::move(thread));
    }
    if (status.ok()) status = begin();
    if (!status.ok()) stop_.Set();
  }
  if (!status.ok()) Stop();
  return status;
}

void FuseDisk::Work(Worker& worker) {
  { const std::lock_guard wait(starting_); }
  // A request is read once there is a server for it: until then the kernel has it, whatever becomes
  // of this process.
  while (stop_.WaitUntilReadable(connection_.number()) && worker.server.Ready()) {
    const ssize_t read = ::read(connection_.number(), worker.buffer.data(), worker.buffer.size());
    if (read >= 0) {
      Handle(worker, static_cast<size_t>(read));
    } else if (errno == ENODEV || errno == EBADF) {
      return;
    }
    // Others: another worker was faster, or the request has been withdrawn.
  }
}

void FuseDisk::Reply(uint64_t unique, int error, std::span<const uint8_t> body) const {
  fuse_out_header header = {.len = static_cast<uint32_t>(sizeof(header) + body.size()),
                            .error = -error,
                            .unique = unique};
  const std::array<iovec, 2> parts = {
      iovec{.iov_base = &header, .iov_len = sizeof(header)},
      iovec{.iov_base = const_cast<uint8_t*>(body.data()), .iov_len = body.size()}};
  // Fails only for a request that the kernel has given up.
  static_cast<void>(
      Retry([&] { return ::writev(connection_.number(), parts.data(), parts.size()); }));
}

void FuseDisk::Handle(Worker& worker, size_t bytes) {
  if (bytes < sizeof(fuse_in_header)) return;
  const auto header = worker.Read<fuse_in_header>(0);
  const uint64_t size = size_.load();
  const size_t body = sizeof(header);
  const auto fail = [&](int error) { Reply(header.unique, error, {}); };
  // Ends a request to the server: with 0, an error, or no answer.
  const auto finish = [&](int error, std::span<const uint8_t> answer) {
    if (error == NbdConnection::kAbandoned) {
      abandoned_ = true;
    } else {
      Reply(header.unique, error, error == 0 ? answer : std::span<const uint8_t>());
    }
  };
  switch (header.opcode) {
    case FUSE_READ: {
      const auto request = worker.Read<fuse_read_in>(body);
      if (request.size > kMaxBytes) return fail(EINVAL);
      const uint64_t left = size - std::min(size, request.offset);
      const std::span<uint8_t> data(worker.buffer.data(), std::min<uint64_t>(left, request.size));
      return finish(data.empty() ? 0 : worker.server.Read(request.offset, data), data);
    }
    case FUSE_WRITE: {
      const auto request = worker.Read<fuse_write_in>(body);
      const size_t at = body + sizeof(request);
      if (session_.read_only) return fail(EROFS);
      if (bytes < at || request.size > bytes - at) return fail(EINVAL);
      if (request.offset > size || request.size > size - request.offset) {
        return fail(EFBIG);
      }
      const std::span<const uint8_t> data(&worker.buffer[at], request.size);
      const fuse_write_out written = {.size = request.size, .padding = 0};
      return finish(worker.server.Write(request.offset, data), BytesOf(written));
    }
    case FUSE_FSYNC:
      return finish(session_.read_only ? 0 : worker.server.Flush(), {});
    case FUSE_FALLOCATE: {
      const auto request = worker.Read<fuse_fallocate_in>(body);
      const uint32_t mode = request.mode & ~uint32_t{FALLOC_FL_KEEP_SIZE};
      if (session_.read_only) return fail(EROFS);
      if (mode != FALLOC_FL_PUNCH_HOLE && mode != FALLOC_FL_ZERO_RANGE) return fail(EOPNOTSUPP);
      if (request.offset > size || request.length > size - request.offset) {
        return fail(EFBIG);
      }
      return finish(worker.server.Zero(request.offset, request.length,
                                       /*allocate=*/mode == FALLOC_FL_ZERO_RANGE),
                    {});
    }
    case FUSE_LOOKUP: {
      const std::string_view name(reinterpret_cast<const char*>(&worker.buffer[body]),
                                  bytes - body);
      if (header.nodeid != FUSE_ROOT_ID || name.substr(0, name.find('\0')) != kFileName) {
        return fail(ENOENT);
      }
      fuse_entry_out entry = {};
      entry.nodeid = kFileNode;
      entry.entry_valid = kForEver;
      entry.attr_valid = kForEver;
      entry.attr = AttributesOf(kFileNode, size, session_.read_only);
      return Reply(header.unique, 0, BytesOf(entry));
    }
    case FUSE_GETATTR:
    case FUSE_SETATTR: {
      // Times and the like are not kept; the size is the volume's.
      if (header.opcode == FUSE_SETATTR &&
          (worker.Read<fuse_setattr_in>(body).valid & (FATTR_SIZE | FATTR_MODE)) != 0) {
        return fail(EPERM);
      }
      fuse_attr_out answer = {};
      answer.attr_valid = kForEver;
      answer.attr = AttributesOf(header.nodeid, size, session_.read_only);
      return Reply(header.unique, 0, BytesOf(answer));
    }
    case FUSE_OPEN: {
      fuse_open_out answer = {};
      // No second copy of what the device's page cache holds, writes side by side, and no request
      // to the server when the file is closed.
      answer.open_flags = FOPEN_DIRECT_IO | FOPEN_PARALLEL_DIRECT_WRITES | FOPEN_NOFLUSH;
      return Reply(header.unique, 0, BytesOf(answer));
    }
    case FUSE_OPENDIR:
      return Reply(header.unique, 0, BytesOf(fuse_open_out{}));
    case FUSE_READDIR: {
      const auto request = worker.Read<fuse_read_in>(body);
      size_t length = 0;
      const auto entries = Entries(request.offset, length);
      return Reply(header.unique, 0, {entries.data(), std::min<size_t>(length, request.size)});
    }
    case FUSE_STATFS: {
      fuse_statfs_out answer = {};
      answer.st.bsize = 4096;
      answer.st.frsize = 4096;
      answer.st.blocks = size / 4096;
      answer.st.files = 1;
      answer.st.namelen = 255;
      return Reply(header.unique, 0, BytesOf(answer));
    }
    case FUSE_FLUSH:
    case FUSE_RELEASE:
    case FUSE_RELEASEDIR:
    case FUSE_DESTROY:
      return fail(0);
    case FUSE_FORGET:
    case FUSE_BATCH_FORGET:
    case FUSE_INTERRUPT:
      return;  // expect no answer
    default:
      return fail(ENOSYS);
  }
}

}  // namespace cbt::driver
