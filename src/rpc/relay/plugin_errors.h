// Errors of a plugin, as clients of a relay see them.
#ifndef CBT_RPC_RELAY_PLUGIN_ERRORS_H_
#define CBT_RPC_RELAY_PLUGIN_ERRORS_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "cbt/rpc/telemetry.h"
#include "cbt/secrets.h"

namespace cbt::rpc {

// A plugin's text may hold anything: a secret in whatever form, what its trailers said, the path of
// its socket. So a client gets the code and a sentence of ours, and the text goes to the log, under
// an error id that the sentence names. Thread safe.
class PluginErrors {
 public:
  // `log` may be null and must outlive the object; then no text is kept.
  explicit PluginErrors(LogSink* log = nullptr) : log_(log) {}

  // `error` as a client may see it. What resembles one of `secrets` is kept out of the log as well.
  absl::Status ForClient(const absl::Status& error, const Secrets& secrets) const noexcept;

 private:
  LogSink* log_;
};

// True when `text` holds a part of a secret: at least half of it and four characters, or all of a
// shorter one, as it is or as hexadecimal digits or base64, in whatever case and with whatever
// between the characters.
bool Resembles(std::string_view text, const Secrets& secrets);

}  // namespace cbt::rpc

#endif  // CBT_RPC_RELAY_PLUGIN_ERRORS_H_
