// nbdkit's plugin "cbt": serves a tracked volume over NBD. docs/guides/tracked-volumes.md.
//
//   nbdkit cbt directory=/srv/volumes/v1 control=/run/v1.sock
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#define NBDKIT_API_VERSION 2
#include <nbdkit-plugin.h>

#include "absl/status/status.h"
#include "base/descriptor.h"
#include "cbt/version.h"
#include "programs/volume/control.h"
#include "programs/volume/tracked_volume.h"

#define THREAD_MODEL NBDKIT_THREAD_MODEL_PARALLEL

namespace {

using cbt::volume::ControlServer;
using cbt::volume::Durability;
using cbt::volume::TrackedVolume;
using cbt::volume::VolumeExtent;
using cbt::volume::ZeroCost;

// The most parts in an answer to a request for extents; clients ask again for the rest.
constexpr size_t kMaxExtents = 1024;

// One volume for the process. Made after the last fork(), and gone before the plugin is unloaded.
struct Served {
  std::string directory;
  std::string control;
  bool revert = true;  // clients of the control socket may
  int64_t size = 0;    // of a new volume; 0: it must exist
  cbt::volume::CreateOptions create;
  cbt::volume::OpenOptions options;
  std::unique_ptr<TrackedVolume> volume;
  std::unique_ptr<ControlServer> server;
  cbt::OwnedDescriptor errors;  // stderr, until the volume is served
};
Served* served = nullptr;

int ErrorNumber(const absl::Status& status) noexcept {
  switch (status.code()) {
    case absl::StatusCode::kResourceExhausted:
      return ENOSPC;
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kInvalidArgument:
      return EINVAL;
    case absl::StatusCode::kPermissionDenied:
      return EPERM;
    case absl::StatusCode::kFailedPrecondition:
      return ESHUTDOWN;
    case absl::StatusCode::kUnimplemented:
      return EOPNOTSUPP;
    default:
      return EIO;
  }
}

int Report(const absl::Status& status) {
  if (status.ok()) return 0;
  const std::string text(status.message());
  // What a client only tries is no error to be logged each time.
  if (absl::IsUnimplemented(status)) {
    ::nbdkit_debug("%s", text.c_str());
  } else {
    ::nbdkit_error("%s", text.c_str());
  }
  ::nbdkit_set_error(ErrorNumber(status));
  return -1;
}

// Runs a callback's body: an exception must not reach nbdkit, which is C.
template <typename Body>
int Guarded(Body body) noexcept {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    ::nbdkit_error("out of memory");
    ::nbdkit_set_error(ENOMEM);
  } catch (const std::exception& exception) {
    ::nbdkit_error("%s", exception.what());
    ::nbdkit_set_error(EIO);
  }
  return -1;
}

Durability DurabilityOf(uint32_t flags) noexcept {
  return (flags & NBDKIT_FLAG_FUA) != 0 ? Durability::kFlushed : Durability::kCached;
}

// Keeps a path that is still right after the server has changed its directory.
int KeepPath(std::string& path, const char* value) {
  char* const absolute = ::nbdkit_absolute_path(value);
  if (absolute == nullptr) return -1;
  path = absolute;
  ::free(absolute);
  return 0;
}

int Configure(const char* key, const char* value) {
  return Guarded([&] {
    const std::string_view name(key);
    if (name == "directory") return KeepPath(served->directory, value);
    if (name == "control") return KeepPath(served->control, value);
    if (name == "image") return KeepPath(served->create.image, value);
    if (name == "size") {
      served->size = ::nbdkit_parse_size(value);
      return served->size < 0 ? -1 : 0;
    }
    if (name == "copy") {
      const int flag = ::nbdkit_parse_bool(value);
      served->options.always_copy = flag > 0;
      return flag < 0 ? -1 : 0;
    }
    if (name == "revert") {
      const int flag = ::nbdkit_parse_bool(value);
      served->revert = flag > 0;
      return flag < 0 ? -1 : 0;
    }
    if (name == "checkpoint") {
      return ::nbdkit_parse_unsigned("checkpoint", value, &served->options.checkpoint_seconds);
    }
    ::nbdkit_error("unknown parameter '%s'", key);
    return -1;
  });
}

int CheckConfiguration() {
  if (!served->directory.empty()) return 0;
  ::nbdkit_error("directory=DIR, the volume's directory, is missing");
  return -1;
}

// Before the last fork(), after which nbdkit's stderr leads nowhere: the program that has started
// it must learn why the volume can't be opened.
int KeepStderr() {
  served->errors = cbt::OwnedDescriptor(::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3));
  return 0;
}

int ReportOpening(const absl::Status& status) {
  if (!status.ok()) {
    ::dprintf(served->errors.number(), "nbdkit: cbt: %s\n", std::string(status.message()).c_str());
  }
  return Report(status);
}

// After the last fork(): a tracker belongs to the process that opened it.
int OpenVolume() {
  return Guarded([] {
    if (served->size > 0) {
      const absl::Status made = TrackedVolume::Create(
          served->directory, static_cast<uint64_t>(served->size), served->create);
      if (!made.ok() && !absl::IsAlreadyExists(made)) return ReportOpening(made);
    }
    absl::StatusOr<std::unique_ptr<TrackedVolume>> volume =
        TrackedVolume::Open(served->directory, served->options);
    if (!volume.ok()) return ReportOpening(volume.status());
    served->volume = *std::move(volume);
    if (const std::string found = served->volume->status().last_error; !found.empty()) {
      ::nbdkit_error("%s", found.c_str());
    }
    if (served->control.empty()) {
      served->errors = {};
      return 0;
    }
    absl::StatusOr<std::unique_ptr<ControlServer>> server = ControlServer::Start(
        *served->volume, {.path = served->control, .allow_revert = served->revert});
    if (!server.ok()) return ReportOpening(server.status());
    served->server = *std::move(server);
    served->errors = {};
    return 0;
  });
}

void CloseVolume() {
  static_cast<void>(Guarded([] {
    served->server.reset();
    if (served->volume == nullptr) return 0;
    const int closed = Report(served->volume->Close());
    served->volume.reset();
    return closed;
  }));
}

int64_t SizeOf(void*) { return static_cast<int64_t>(served->volume->capacity()); }

int BlockSizes(void*, uint32_t* minimum, uint32_t* preferred, uint32_t* maximum) {
  *minimum = 1;
  *preferred = 4096;
  *maximum = UINT32_MAX;
  return 0;
}

int Read(void*, void* buffer, uint32_t count, uint64_t offset, uint32_t) {
  return Guarded([&] {
    return Report(served->volume->Read(offset, {static_cast<uint8_t*>(buffer), count}));
  });
}

int Write(void*, const void* buffer, uint32_t count, uint64_t offset, uint32_t flags) {
  return Guarded([&] {
    return Report(served->volume->Write(offset, {static_cast<const uint8_t*>(buffer), count},
                                        DurabilityOf(flags)));
  });
}

int Flush(void*, uint32_t) {
  return Guarded([] { return Report(served->volume->Flush()); });
}

int Trim(void*, uint32_t count, uint64_t offset, uint32_t flags) {
  return Guarded([&] {
    return Report(served->volume->Trim({offset, count}, DurabilityOf(flags)));
  });
}

int Zero(void*, uint32_t count, uint64_t offset, uint32_t flags) {
  return Guarded([&] {
    const ZeroCost cost =
        (flags & NBDKIT_FLAG_FAST_ZERO) != 0 ? ZeroCost::kFastOnly : ZeroCost::kAny;
    return Report(served->volume->Zero({offset, count}, (flags & NBDKIT_FLAG_MAY_TRIM) != 0,
                                       DurabilityOf(flags), cost));
  });
}

int Extents(void*, uint32_t count, uint64_t offset, uint32_t flags, nbdkit_extents* extents) {
  return Guarded([&] {
    const absl::StatusOr<std::vector<VolumeExtent>> parts = served->volume->Extents(
        {offset, count}, (flags & NBDKIT_FLAG_REQ_ONE) != 0 ? 1 : kMaxExtents);
    if (!parts.ok()) return Report(parts.status());
    for (const VolumeExtent& part : *parts) {
      const uint32_t type = part.hole ? NBDKIT_EXTENT_HOLE | NBDKIT_EXTENT_ZERO : 0;
      if (::nbdkit_add_extent(extents, part.extent.offset, part.extent.length, type) != 0) {
        return -1;
      }
    }
    return 0;
  });
}

void* OpenConnection(int) {
  return Guarded([] { return Report(served->volume->Attach()); }) == 0 ? NBDKIT_HANDLE_NOT_NEEDED
                                                                       : nullptr;
}
void CloseConnection(void*) { served->volume->Detach(); }
int Yes(void*) { return 1; }
int NativeFua(void*) { return NBDKIT_FUA_NATIVE; }
int NoCache(void*) { return NBDKIT_CACHE_NONE; }

void Load() { served = new (std::nothrow) Served; }
void Unload() { delete std::exchange(served, nullptr); }

constexpr char kHelp[] =
    "directory=DIR       (required) the directory of the volume\n"
    "size=SIZE           makes the volume if it is missing\n"
    "image=FILE          what a new volume starts with\n"
    "control=SOCKET      a Unix socket for snapshots, resizing and status\n"
    "copy=true           copies snapshots even where files can be cloned\n"
    "revert=false        refuses to go back to a snapshot\n"
    "checkpoint=SECONDS  how often the exact state is saved while there are writes [600]";

nbdkit_plugin Describe() noexcept {
  nbdkit_plugin description = {};
  description.name = "cbt";
  description.longname = "tracked volumes of libcbt";
  description.version = cbt::kVersion;
  description.description = "serves a volume that tracks its changes and takes snapshots";
  description.config_help = kHelp;
  description.magic_config_key = "directory";
  description.load = Load;
  description.unload = Unload;
  description.config = Configure;
  description.config_complete = CheckConfiguration;
  description.get_ready = KeepStderr;
  description.after_fork = OpenVolume;
  description.cleanup = CloseVolume;
  description.open = OpenConnection;
  description.close = CloseConnection;
  description.get_size = SizeOf;
  description.block_size = BlockSizes;
  description.can_write = Yes;
  description.can_flush = Yes;
  description.can_trim = Yes;
  description.can_zero = Yes;
  // nbdkit 1.32 ends by an assertion when a client asks for it where it was not offered.
  description.can_fast_zero = Yes;
  description.can_extents = Yes;
  description.can_multi_conn = Yes;
  description.can_fua = NativeFua;
  description.can_cache = NoCache;
  description.pread = Read;
  description.pwrite = Write;
  description.flush = Flush;
  description.trim = Trim;
  description.zero = Zero;
  description.extents = Extents;
  description.errno_is_preserved = 0;
  return description;
}

nbdkit_plugin plugin = Describe();

}  // namespace

NBDKIT_REGISTER_PLUGIN(plugin)
