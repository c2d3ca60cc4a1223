#include "kube/client/credentials.h"

#include <algorithm>
#include <exception>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "base/wipe.h"

namespace cbt::kube {
namespace {

// Kubelets replace a token when a fifth of its life is left.
constexpr std::chrono::seconds kTokenAge{50};
// A token that is about to expire would do so on its way.
constexpr std::chrono::seconds kExpiryLeeway{10};
// What a plugin prints is used for this long even if it expires sooner, and its failure stands for
// this long: it is not started over and over.
constexpr std::chrono::seconds kPluginPause{1};

absl::Status CheckCertificates(std::string_view text) {
  return text.find("-----BEGIN CERTIFICATE-----") != std::string_view::npos
             ? absl::OkStatus()
             : absl::InvalidArgumentError("expected certificates in PEM");
}

absl::Status CheckKey(std::string_view text) {
  return text.find("PRIVATE KEY-----") != std::string_view::npos
             ? absl::OkStatus()
             : absl::InvalidArgumentError("expected a private key in PEM");
}

std::string_view Trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

// A token becomes part of a header.
absl::Status CheckToken(std::string_view text) {
  const std::string_view token = Trimmed(text);
  if (token.empty()) return absl::InvalidArgumentError("expected a token, found none");
  const bool clean =
      std::all_of(token.begin(), token.end(), [](char c) { return c > 0x20 && c < 0x7f; });
  return clean ? absl::OkStatus()
               : absl::InvalidArgumentError("the token has characters that no token has");
}

absl::Status Prefixed(std::string_view prefix, const absl::Status& status) {
  return status.ok() ? status
                     : absl::Status(status.code(), absl::StrCat(AbslView(prefix), ": ",
                                                                std::string(status.message())));
}

// A failure to have credentials says nothing about what was asked of the server.
absl::Status Unavailable(const absl::Status& status) {
  return absl::UnavailableError(absl::StrCat("credentials: ", std::string(status.message())));
}

Secret BearerHeader(std::string_view token) {
  std::string header = absl::StrCat("Authorization: Bearer ", AbslView(Trimmed(token)));
  const Wiper wiper(header);
  return Secret(header);
}

Secret BasicHeader(const Config& config) {
  std::string pair = absl::StrCat(config.username, ":", AbslView(config.password.Reveal()));
  const Wiper pair_wiper(pair);
  std::string encoded = absl::Base64Escape(pair);
  const Wiper encoded_wiper(encoded);
  std::string header = absl::StrCat("Authorization: Basic ", encoded);
  const Wiper wiper(header);
  return Secret(header);
}

}  // namespace

Credentials::Credentials(const Config& config, std::function<void()> wake)
    : config_(config.Copy()), wake_(std::move(wake)) {
  if (!config.ca_file.empty()) ca_file_.emplace(config.ca_file, CheckCertificates);
  if (!config.client_certificate_file.empty()) {
    certificate_file_.emplace(config.client_certificate_file, CheckCertificates);
  }
  if (!config.client_key_file.empty()) key_file_.emplace(config.client_key_file, CheckKey);
  if (!config.exec && !config.token_file.empty()) {
    token_file_.emplace(config.token_file, CheckToken);
  }
}

Credentials::~Credentials() { thread_.request_stop(); }

absl::StatusOr<std::unique_ptr<Credentials>> Credentials::Create(const Config& config,
                                                                 std::function<void()> wake) {
  const bool certificate =
      !config.client_certificate.empty() || !config.client_certificate_file.empty();
  const bool key = !config.client_key.empty() || !config.client_key_file.empty();
  if (certificate != key) {
    return absl::InvalidArgumentError("client certificate without key, or key without certificate");
  }
  absl::Status status;
  if (!config.ca.empty()) {
    status.Update(Prefixed("CA of the configuration", CheckCertificates(config.ca)));
  }
  if (!config.client_certificate.empty()) {
    status.Update(Prefixed("client certificate of the configuration",
                           CheckCertificates(config.client_certificate)));
  }
  if (!config.client_key.empty()) {
    status.Update(
        Prefixed("client key of the configuration", CheckKey(config.client_key.Reveal())));
  }
  if (!config.token.empty()) {
    status.Update(Prefixed("token of the configuration", CheckToken(config.token.Reveal())));
  }
  if (config.exec && config.exec->command.empty()) {
    status.Update(absl::InvalidArgumentError("credential plugin: has no command"));
  }
  if (!status.ok()) return status;

  std::unique_ptr<Credentials> credentials(new Credentials(config, std::move(wake)));
  bool changed = false;
  status = credentials->RefreshPem(changed);
  if (status.ok()) status = credentials->RefreshToken(Clock::now(), changed);
  if (!status.ok()) return status;
  return credentials;
}

absl::Status Credentials::RefreshPem(bool& changed) {
  for (std::optional<LatestFile>* file : {&ca_file_, &certificate_file_, &key_file_}) {
    if (!file->has_value()) continue;
    const absl::StatusOr<bool> updated = (*file)->Update();
    if (!updated.ok()) return updated.status();
    changed |= *updated;
  }
  return absl::OkStatus();
}

absl::Status Credentials::RefreshToken(Clock::time_point now, bool& changed) {
  if (!token_file_ || (now < token_due_ && !token_rejected_)) return absl::OkStatus();
  const absl::StatusOr<bool> updated = token_file_->Update(true);
  if (!updated.ok()) return updated.status();
  token_due_ = now + kTokenAge;
  token_rejected_ = false;
  changed |= *updated;
  return absl::OkStatus();
}

absl::StatusOr<bool> Credentials::RefreshPlugin(Clock::time_point now, bool& changed) {
  {
    const std::lock_guard lock(mutex_);
    if (running_) return false;
    if (finished_) {
      absl::StatusOr<PluginCredentials> result = *std::move(finished_);
      finished_.reset();
      if (result.ok() && !result->token.empty()) {
        absl::Status checked = CheckToken(result->token.Reveal());
        if (!checked.ok()) {
          result = absl::UnavailableError(absl::StrCat("credential plugin ", config_.exec->command,
                                                       ": ", std::string(checked.message())));
        }
      }
      if (!result.ok()) {
        plugin_.reset();
        plugin_error_ = result.status();
        plugin_error_until_ = now + kPluginPause;
      } else {
        plugin_ = *std::move(result);
        plugin_until_.reset();
        if (plugin_->expires) {
          const auto left = std::chrono::duration_cast<Clock::duration>(
              *plugin_->expires - kExpiryLeeway - std::chrono::system_clock::now());
          // Not beyond what a clock can count.
          plugin_until_ =
              now + std::clamp<Clock::duration>(left, kPluginPause, std::chrono::hours(24 * 365));
        }
        plugin_error_ = absl::OkStatus();
        changed = true;
      }
    }
  }
  if (!plugin_error_.ok() && now < plugin_error_until_) return plugin_error_;
  if (plugin_ && (!plugin_until_ || now < *plugin_until_)) return true;
  {
    const std::lock_guard lock(mutex_);
    running_ = true;
  }
  const auto run = [this](const std::stop_token& stop) {
    absl::StatusOr<PluginCredentials> result = absl::UnavailableError("");
    try {
      result = RunExecPlugin(config_, stop);
    } catch (const std::exception&) {
      // Out of memory: the status without a text needs none.
    }
    {
      const std::lock_guard lock(mutex_);
      finished_ = std::move(result);
      running_ = false;
    }
    wake_();
  };
  try {
    thread_ = std::jthread(run);
  } catch (const std::exception&) {
    const std::lock_guard lock(mutex_);
    running_ = false;
    return absl::UnavailableError("credentials: can't start a thread for the plugin");
  }
  return false;
}

Identity Credentials::MakeIdentity() const {
  Identity identity;
  identity.ca = ca_file_ ? ca_file_->value().Copy() : Secret(config_.ca);
  identity.certificate =
      certificate_file_ ? certificate_file_->value().Copy() : Secret(config_.client_certificate);
  identity.key = key_file_ ? key_file_->value().Copy() : config_.client_key.Copy();
  if (plugin_) {
    if (!plugin_->token.empty()) identity.authorization = BearerHeader(plugin_->token.Reveal());
    if (!plugin_->certificate.empty()) {
      identity.certificate = plugin_->certificate.Copy();
      identity.key = plugin_->key.Copy();
    }
  } else if (token_file_) {
    identity.authorization = BearerHeader(token_file_->value().Reveal());
  } else if (!config_.token.empty()) {
    identity.authorization = BearerHeader(config_.token.Reveal());
  } else if (!config_.username.empty()) {
    identity.authorization = BasicHeader(config_);
  }
  return identity;
}

absl::StatusOr<std::shared_ptr<const Identity>> Credentials::Get(Clock::time_point now) {
  bool changed = identity_ == nullptr;
  absl::Status status = RefreshPem(changed);
  if (status.ok()) status = RefreshToken(now, changed);
  if (!status.ok()) return Unavailable(status);
  if (config_.exec) {
    const absl::StatusOr<bool> ready = RefreshPlugin(now, changed);
    if (!ready.ok()) return ready.status();
    if (!*ready) return nullptr;
  }
  if (changed) {
    Identity identity = MakeIdentity();
    identity.generation = ++generation_;
    identity_ = std::make_shared<const Identity>(std::move(identity));
  }
  return identity_;
}

bool Credentials::Reject(uint64_t generation) {
  if (!config_.exec && !token_file_) return false;
  if (generation != generation_) return true;  // replaced since
  if (config_.exec) {
    plugin_.reset();
  } else {
    token_rejected_ = true;
  }
  return true;
}

}  // namespace cbt::kube
