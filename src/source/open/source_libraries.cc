// The names and versions of the optional libraries.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cbt/source/open.h"

#if CBT_HAVE_EXPAT
#include <expat.h>
#endif
#if CBT_HAVE_RAPIDJSON
#include "rapidjson/rapidjson.h"
#endif
#if CBT_HAVE_LIBEXT2FS
#include <ext2fs/ext2_fs.h>
#include <ext2fs/ext2fs.h>
#endif
#if CBT_HAVE_LIBBLKID
#include <blkid/blkid.h>
#endif

namespace cbt {

std::vector<std::string> SourceLibraries() {
  std::vector<std::string> names;
#if CBT_HAVE_EXPAT
  const XML_Expat_Version expat = XML_ExpatVersionInfo();
  names.push_back(absl::StrCat("expat-", expat.major, ".", expat.minor, ".", expat.micro));
#endif
#if CBT_HAVE_RAPIDJSON
  names.push_back(absl::StrCat("rapidjson-", RAPIDJSON_VERSION_STRING));
#endif
#if CBT_HAVE_LIBNBD
  // Loaded when it is needed, which is not here.
  names.emplace_back("libnbd.so.0");
#endif
#if CBT_HAVE_LIBZSTD
  names.emplace_back("libzstd.so.1");
#endif
#if CBT_HAVE_LIBEXT2FS
  const char* ext_version = nullptr;
  ext2fs_get_library_version(&ext_version, nullptr);
  names.push_back(absl::StrCat("libext2fs-", ext_version == nullptr ? "unknown" : ext_version));
#endif
#if CBT_HAVE_LIBBLKID
  const char* blkid_version = nullptr;
  blkid_get_library_version(&blkid_version, nullptr);
  names.push_back(absl::StrCat("libblkid-", blkid_version == nullptr ? "unknown" : blkid_version));
#endif
  return names;
}

}  // namespace cbt
