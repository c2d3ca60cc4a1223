#ifdef CBT_HAVE_LIBNBD

#include "source/nbd/libnbd.h"

#include "base/system_library.h"

namespace cbt {
namespace {

constinit LibNbd nbd_functions;
constinit SystemLibrary nbd_library("libnbd.so.0", "NBD sources",
                                    "libnbd0 (Debian, Ubuntu) or libnbd (Fedora, Arch, Alpine)");

}  // namespace

absl::Status LoadLibNbd() {
  static constexpr SystemFunction kFunctions[] = {
#define CBT_FUNCTION(function) {"nbd_" #function, &nbd_functions.function},
      CBT_NBD_FUNCTIONS(CBT_FUNCTION)
#undef CBT_FUNCTION
  };
  return nbd_library.Load(kFunctions);
}

const LibNbd& Nbd() noexcept { return nbd_functions; }

}  // namespace cbt

#endif  // CBT_HAVE_LIBNBD
