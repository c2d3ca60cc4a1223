// Calls of the user's own functions.
#ifndef CBT_KUBE_WATCH_NOTIFY_H_
#define CBT_KUBE_WATCH_NOTIFY_H_

namespace cbt::kube {

// Calls `function` unless it is empty. What it throws ends here.
template <typename Function, typename... Arguments>
void Notify(const Function& function, const Arguments&... arguments) noexcept {
  if (!function) return;
  try {
    function(arguments...);
  } catch (...) {  // NOLINT(bugprone-empty-catch)
  }
}

}  // namespace cbt::kube

#endif  // CBT_KUBE_WATCH_NOTIFY_H_
