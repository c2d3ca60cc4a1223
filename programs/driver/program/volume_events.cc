#include "programs/driver/program/volume_events.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cbt/kube/client.h"
#include "cbt/kube/config.h"
#include "cbt/kube/object.h"

namespace cbt::cli {
namespace {

constexpr size_t kMaxWaiting = 256;
constexpr size_t kMaxMessageBytes = 1024;  // what the API server takes
constexpr char kDefaultNamespace[] = "default";

// The claim that the volume was made for, or the node without one.
kube::Object AboutOf(const kube::ObjectList& volumes, const VolumeEventsOptions& options,
                     const std::string& volume) {
  for (const kube::Object& each : volumes.items) {
    const auto is = [&each](const kube::Path& path, const std::string& wanted) {
      const absl::StatusOr<std::string> text = each.String(path);
      return text.ok() && *text == wanted;
    };
    if (!is({"spec", "csi", "driver"}, options.driver_name) ||
        !is({"spec", "csi", "volumeHandle"}, volume)) {
      continue;
    }
    const absl::StatusOr<kube::Object> claim = each.Child({"spec", "claimRef"});
    if (!claim.ok() || !claim->String({"name"}).ok()) break;
    kube::Object about = *claim;
    about.SetString({"apiVersion"}, "v1");
    about.SetString({"kind"}, "PersistentVolumeClaim");
    return about;
  }
  kube::Object node;
  node.SetString({"apiVersion"}, "v1");
  node.SetString({"kind"}, "Node");
  node.SetString({"name"}, options.node_id);
  // As the kubelet has it.
  node.SetString({"uid"}, options.node_id);
  return node;
}

const char* ReasonOf(const std::string& volume, const driver::VolumeHealth& health) {
  if (volume.empty()) return health.serving() ? "VolumeHostRunning" : "VolumeHostNotRunning";
  if (health.serving()) return "VolumeServerRestarted";
  return health.state == driver::VolumeHealth::State::kFailed ? "VolumeDeviceFailed"
                                                              : "VolumeServerNotRunning";
}

std::string MessageTextOf(const std::string& volume, const driver::VolumeHealth& health) {
  if (volume.empty()) {
    return health.serving() ? "the volume host answers again"
                            : "the volume host does not answer: no server that ends is started "
                              "again, and no volume can be staged";
  }
  if (!health.serving()) return absl::StrCat("volume ", volume, ": ", health.error);
  return absl::StrCat("volume ", volume, ": it is served again, its server was started again ",
                      health.restarts, " times so far; requests waited meanwhile");
}

class EventWriter {
 public:
  EventWriter(VolumeEventsOptions options, std::unique_ptr<kube::Client> client)
      : options_(std::move(options)), client_(std::move(client)), thread_([this] { Run(); }) {}
  // What has not been written by then is lost.
  ~EventWriter() {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  EventWriter(const EventWriter&) = delete;
  EventWriter& operator=(const EventWriter&) = delete;

  void Add(const std::string& volume, const driver::VolumeHealth& health) {
    {
      const std::lock_guard lock(mutex_);
      if (waiting_.size() >= kMaxWaiting) return;
      waiting_.emplace_back(volume, health);
    }
    changed_.notify_all();
  }

 private:
  void Run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return ending_ || !waiting_.empty(); });
      if (ending_) return;
      const auto [volume, health] = std::move(waiting_.front());
      waiting_.pop_front();
      lock.unlock();
      Write(volume, health).IgnoreError();
      lock.lock();
    }
  }
  absl::Status Write(const std::string& volume, const driver::VolumeHealth& health);

  const VolumeEventsOptions options_;
  const std::unique_ptr<kube::Client> client_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::pair<std::string, driver::VolumeHealth>> waiting_;
  bool ending_ = false;
  std::thread thread_;
};

absl::Status EventWriter::Write(const std::string& volume, const driver::VolumeHealth& health) {
  kube::ObjectList volumes;
  if (!volume.empty()) {
    absl::StatusOr<kube::ObjectList> all =
        client_->ListAll(kube::kPersistentVolumes, /*name_space=*/"");
    if (!all.ok()) return all.status();
    volumes = *std::move(all);
  }
  const kube::Object about = AboutOf(volumes, options_, volume);
  const absl::StatusOr<std::string> name = about.String({"name"});
  if (!name.ok()) return name.status();
  const absl::StatusOr<std::optional<std::string>> name_space = about.OptionalString({"namespace"});
  if (!name_space.ok()) return name_space.status();

  kube::Object event;
  event.SetMeta({.name_space = name_space->value_or(kDefaultNamespace),
                 .generate_name = absl::StrCat(*name, ".")});
  event.SetChild({"involvedObject"}, about);
  event.SetString({"type"}, health.serving() ? "Normal" : "Warning");
  event.SetString({"reason"}, ReasonOf(volume, health));
  std::string message = MessageTextOf(volume, health);
  message.resize(std::min(message.size(), kMaxMessageBytes));
  event.SetString({"message"}, message);
  const std::string now = kube::FormatTime(
      std::chrono::time_point_cast<std::chrono::microseconds>(std::chrono::system_clock::now()));
  event.SetString({"firstTimestamp"}, now);
  event.SetString({"lastTimestamp"}, now);
  event.SetInt({"count"}, 1);
  event.SetString({"source", "component"}, options_.driver_name);
  event.SetString({"source", "host"}, options_.node_id);
  event.SetString({"reportingComponent"}, options_.driver_name);
  event.SetString({"reportingInstance"}, options_.node_id);
  return client_->Create(kube::kEvents, event).status();
}

}  // namespace

absl::StatusOr<VolumeEvents> MakeVolumeEvents(const VolumeEventsOptions& options) {
  absl::StatusOr<kube::Config> config = kube::LoadDefaultConfig(options.kubeconfig);
  if (!config.ok()) return config.status();
  absl::StatusOr<std::unique_ptr<kube::Client>> client = kube::Client::Create(*std::move(config));
  if (!client.ok()) return client.status();
  return [writer = std::make_shared<EventWriter>(options, *std::move(client))](
             const std::string& volume, const driver::VolumeHealth& health) {
    writer->Add(volume, health);
  };
}

}  // namespace cbt::cli
