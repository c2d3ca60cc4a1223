// The texts of kubeconfig files.
#ifndef CBT_KUBE_CLIENT_KUBECONFIG_H_
#define CBT_KUBE_CLIENT_KUBECONFIG_H_

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "cbt/kube/config.h"

namespace cbt::kube {

// As LoadKubeconfig(), from pairs of a file's name and its text.
absl::StatusOr<Config> ParseKubeconfig(
    const std::vector<std::pair<std::string, std::string_view>>& files, const std::string& context);

}  // namespace cbt::kube

#endif  // CBT_KUBE_CLIENT_KUBECONFIG_H_
