#include "c/abandoned.h"

#include <atomic>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/text.h"

namespace cbt::c {
namespace {

struct Abandoned {
  std::shared_ptr<const void> what;
  Abandoned* next = nullptr;
};

}  // namespace

void Abandon(std::shared_ptr<const void> what) noexcept {
  // A lock might have been taken by another thread of the parent.
  static std::atomic<Abandoned*> first = nullptr;
  auto* const kept = new (std::nothrow) Abandoned;
  // Without memory it leaks, too.
  if (kept == nullptr) {
    alignas(std::shared_ptr<const void>) unsigned char nowhere[sizeof(what)];
    new (nowhere) std::shared_ptr<const void>(std::move(what));
    return;
  }
  kept->what = std::move(what);
  kept->next = first.load();
  while (!first.compare_exchange_weak(kept->next, kept)) {
  }
}

absl::Status IsParents(std::string_view name) {
  return absl::FailedPreconditionError(
      absl::StrCat(AbslView(name),
                   ": was made before fork() and can't be used in the child; make a "
                   "new one there"));
}

}  // namespace cbt::c
