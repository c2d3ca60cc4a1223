#include "source/signature/signatures.h"

#ifdef CBT_HAVE_LIBBLKID
#include <blkid/blkid.h>
#include <fcntl.h>
#endif

#include <algorithm>
#include <cerrno>
#include <memory>
#include <mutex>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/descriptor.h"
#include "base/file_io.h"
#include "base/text.h"

namespace cbt {

#ifdef CBT_HAVE_LIBBLKID

namespace {

struct FreeProbe {
  void operator()(blkid_probe probe) const { blkid_free_probe(probe); }
};

absl::Status ProbeFailed(const Image& image, int error) {
  const std::string text = absl::StrCat(image.label(), ": looking for signatures failed");
  return error == ENOMEM ? absl::ResourceExhaustedError(text) : absl::UnavailableError(text);
}

std::string ValueOfProbe(blkid_probe probe, const char* name) {
  const char* text = nullptr;
  size_t length = 0;
  if (blkid_probe_lookup_value(probe, name, &text, &length) != 0 || text == nullptr) return {};
  // The length counts the terminating NUL of texts.
  const std::string_view value(text, length);
  return std::string(value.substr(0, value.find('\0')));
}

// True for a table of the DOS kind without a partition: boot sectors of file systems end in the
// same two bytes.
bool IsMereBootSector(blkid_probe probe, const std::string& type) {
  if (type != "dos") return false;
  const blkid_partlist partitions = blkid_probe_get_partitions(probe);
  return partitions != nullptr && blkid_partlist_numof_partitions(partitions) == 0;
}

// What versions of the library in use don't know, or not in all its forms.
struct OwnMagic {
  const char* type;
  uint64_t offset;
  std::string_view bytes;
};
constexpr OwnMagic kOwnMagics[] = {
    {"bcachefs", 4120, "\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef"},
    {"bcachefs", 4120, "\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81"},
};

absl::Status AddOwn(const Image& image, std::vector<FoundSignature>& found) {
  for (const OwnMagic& magic : kOwnMagics) {
    std::string there(magic.bytes.size(), '\0');
    absl::Status status =
        image.Read(magic.offset, there.size(), reinterpret_cast<uint8_t*>(there.data()));
    if (!status.ok()) return status;
    const bool known = std::ranges::any_of(
        found, [&magic](const FoundSignature& other) { return other.offset == magic.offset; });
    if (there == magic.bytes && !known) found.push_back({magic.type, magic.offset});
  }
  return absl::OkStatus();
}

// Adds what the chains that are enabled in `probe` recognise. Returns 0 or an error number.
int Collect(blkid_probe probe, std::vector<FoundSignature>& found) {
  for (;;) {
    errno = 0;
    const int outcome = blkid_do_probe(probe);
    if (outcome < 0) return errno != 0 ? errno : EIO;
    if (outcome > 0) return 0;
    const bool table = blkid_probe_has_value(probe, "PTTYPE") != 0;
    FoundSignature signature{.type = ValueOfProbe(probe, table ? "PTTYPE" : "TYPE")};
    if (signature.type.empty()) continue;
    const std::string offset = ValueOfProbe(probe, table ? "PTMAGIC_OFFSET" : "SBMAGIC_OFFSET");
    // A few kinds have no magic bytes: those count as the first ones.
    static_cast<void>(absl::SimpleAtoi(offset, &signature.offset));
    // Last: it drops the other values.
    if (table && IsMereBootSector(probe, signature.type)) continue;
    const bool known = std::ranges::any_of(found, [&signature](const FoundSignature& other) {
      return other.type == signature.type && other.offset == signature.offset;
    });
    if (!known) found.push_back(std::move(signature));
  }
}

int ProbeOnce(const Image& image, int file, unsigned sector, std::vector<FoundSignature>& found) {
  const std::unique_ptr<blkid_struct_probe, FreeProbe> probe(blkid_new_probe());
  if (probe == nullptr) return ENOMEM;
  errno = 0;
  if (blkid_probe_set_device(probe.get(), file, 0, static_cast<blkid_loff_t>(image.size())) != 0 ||
      blkid_probe_set_sectorsize(probe.get(), sector) != 0) {
    return errno != 0 ? errno : EIO;
  }
  // Only the places of partition tables depend on the size of sectors.
  const bool first = sector == 512;
  blkid_probe_enable_superblocks(probe.get(), first ? 1 : 0);
  blkid_probe_set_superblocks_flags(probe.get(),
                                    BLKID_SUBLKS_TYPE | BLKID_SUBLKS_MAGIC | BLKID_SUBLKS_BADCSUM);
  blkid_probe_enable_partitions(probe.get(), 1);
  blkid_probe_set_partitions_flags(probe.get(), BLKID_PARTS_MAGIC | BLKID_PARTS_FORCE_GPT);
  return Collect(probe.get(), found);
}

}  // namespace

absl::StatusOr<std::vector<FoundSignature>> FindSignatures(const Image& image) {
  static std::once_flag initialized;
  std::call_once(initialized, [] { blkid_init_debug(0); });
  // The library moves the file's position, which other readers of the image share.
  const std::string path = absl::StrCat("/proc/self/fd/", image.descriptor());
  const OwnedDescriptor file(OpenFile(path, O_RDONLY | O_CLOEXEC));
  if (!file.has_value()) return FileError(image.label(), errno);
  std::vector<FoundSignature> found;
  for (const unsigned sector : {512u, 4096u}) {
    // The library gives up where a signal interrupts a read.
    int error = EINTR;
    while (error == EINTR) error = ProbeOnce(image, file.number(), sector, found);
    if (error != 0) return ProbeFailed(image, error);
  }
  if (absl::Status status = AddOwn(image, found); !status.ok()) return status;
  return found;
}

#else

absl::StatusOr<std::vector<FoundSignature>> FindSignatures(const Image& image) {
  return absl::UnimplementedError(
      absl::StrCat(image.label(), ": built without libblkid, so other signatures can't be found"));
}

#endif  // CBT_HAVE_LIBBLKID

absl::Status CheckOnlySignature(const Image& image, const ClaimedFormat& format) {
  const absl::StatusOr<std::vector<FoundSignature>> found = FindSignatures(image);
  if (!found.ok()) {
    return absl::Status(found.status().code(),
                        absl::StrCat(found.status().message(), ": ", AbslView(format.remedy)));
  }
  bool own = format.types.size() == 0;
  std::string others;
  for (const FoundSignature& signature : *found) {
    if (signature.offset == format.offset &&
        std::ranges::find(format.types, std::string_view(signature.type)) != format.types.end()) {
      own = true;
    } else if (signature.offset < format.end) {
      absl::StrAppend(&others, others.empty() ? "" : ", ", signature.type, " at offset ",
                      signature.offset);
    }
  }
  if (!others.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        image.label(), ": has the signature of ", AbslView(format.name), " at offset ",
        format.offset, ", and others too: ", others,
        ". One of them may be left over from before, and what it says no longer true: ",
        AbslView(format.remedy)));
  }
  if (!own) {
    return absl::FailedPreconditionError(
        absl::StrCat(image.label(), ": libblkid does not find ", AbslView(format.name),
                     " in it, so other signatures may be hidden too: ", AbslView(format.remedy)));
  }
  return absl::OkStatus();
}

}  // namespace cbt
