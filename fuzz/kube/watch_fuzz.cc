// A watch's bytes, cut at random: the events are those of the uncut bytes, split in the obvious
// way; each is an error, a bookmark or an object that can be stored; and a store that follows them
// has what a plain map has.
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cbt/kube/object.h"
#include "fuzz/support/check.h"
#include "fuzz/support/input.h"
#include "kube/client/line_splitter.h"
#include "kube/watch/object_store.h"
#include "kube/watch/watch_event.h"

namespace {

using cbt::kube::ObjectPtr;
using cbt::kube::ObjectStore;
using cbt::kube::WatchEvent;
using cbt::kube::WatchTarget;

class Script : public cbt::fuzz::Input {
 public:
  using Input::Input;

  std::string Rest() {
    std::string bytes(reinterpret_cast<const char*>(data_), size_);
    size_ = 0;
    return bytes;
  }
};

std::string LabelOf(const cbt::kube::Object& object) {
  return std::string(object.label("value").value_or(""));
}

// What a reader of events holds.
class Follower {
 public:
  explicit Follower(const WatchTarget& target)
      : target_(target), store_({{"value", [](const cbt::kube::Object& object) {
                                    return std::vector<std::string>{LabelOf(object)};
                                  }}}) {}

  absl::Status OnLine(std::string_view line) {
    absl::StatusOr<WatchEvent> event = DecodeWatchEvent(target_, line);
    if (!event.ok()) {
      CBT_FUZZ_CHECK(event.status().code() != absl::StatusCode::kOk);
      return event.status();
    }
    CBT_FUZZ_CHECK(!event->object.resource_version().empty());
    log_ += std::to_string(static_cast<int>(event->type)) + (event->initial_events_end ? "!" : "") +
            std::string(event->object.resource_version()) + "\n";
    if (event->type == WatchEvent::Type::kBookmark) return absl::OkStatus();
    CBT_FUZZ_CHECK(CheckObject(target_, event->object).ok());
    CBT_FUZZ_CHECK(event->object.kind() == target_.kind);
    CBT_FUZZ_CHECK(!event->object.name().empty());
    CBT_FUZZ_CHECK(event->object.name_space().empty() != target_.namespaced);
    const auto object = std::make_shared<const cbt::kube::Object>(std::move(event->object));
    // Written back, it is the same.
    const auto again = cbt::kube::Object::Parse(object->ToJson());
    CBT_FUZZ_CHECK(again.ok() && *again == *object);
    const Key key{std::string(object->name_space()), std::string(object->name())};
    if (event->type == WatchEvent::Type::kDeleted) {
      const ObjectPtr removed = store_.Remove(key.first, key.second);
      const auto known = plain_.find(key);
      CBT_FUZZ_CHECK(removed == (known == plain_.end() ? nullptr : known->second));
      plain_.erase(key);
    } else {
      const ObjectPtr before = store_.Put(object);
      const auto known = plain_.find(key);
      CBT_FUZZ_CHECK(before == (known == plain_.end() ? nullptr : known->second));
      plain_[key] = object;
    }
    return absl::OkStatus();
  }

  void CheckStore() const {
    CBT_FUZZ_CHECK(store_.size() == plain_.size());
    std::map<std::string, size_t> values;
    for (const auto& [key, object] : plain_) {
      CBT_FUZZ_CHECK(store_.Find(key.first, key.second) == object);
      ++values[LabelOf(*object)];
    }
    for (const auto& [value, count] : values) {
      const std::vector<ObjectPtr> found = store_.ByIndex("value", value);
      CBT_FUZZ_CHECK(found.size() == count);
      for (const ObjectPtr& object : found) CBT_FUZZ_CHECK(LabelOf(*object) == value);
    }
  }

  const std::string& log() const { return log_; }

 private:
  using Key = std::pair<std::string, std::string>;

  const WatchTarget& target_;
  ObjectStore store_;
  std::map<Key, ObjectPtr> plain_;
  std::string log_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Script script(data, size);
  const uint64_t choice = script.Take(1);
  const WatchTarget target(
      (choice & 1) == 0 ? cbt::kube::kConfigMaps : cbt::kube::kVolumeSnapshotContents,
      (choice & 3) == 2 ? "a" : "");
  const size_t step = script.Take(1);
  const size_t limit = (choice & 4) == 0 ? 64 : 100000;
  const std::string bytes = script.Rest();

  Follower whole(target);
  absl::Status want;
  bool in_line = false;
  for (size_t begin = 0; begin < bytes.size() && want.ok();) {
    const size_t newline = bytes.find('\n', begin);
    const size_t end = newline == std::string::npos ? bytes.size() : newline;
    if (end - begin > limit) {
      want = absl::ResourceExhaustedError("too long");
    } else if (newline == std::string::npos) {
      in_line = true;
    } else if (end > begin) {
      want = whole.OnLine(std::string_view(bytes).substr(begin, end - begin));
    }
    begin = end + 1;
  }

  Follower cut(target);
  cbt::kube::LineSplitter splitter(limit);
  absl::Status got;
  size_t piece = step;
  for (size_t begin = 0; begin < bytes.size() && got.ok();) {
    piece = (piece * 31 + step) % 251 + 1;
    const std::string_view part = std::string_view(bytes).substr(begin, piece);
    got = splitter.Add(part, [&cut](std::string_view line) { return cut.OnLine(line); });
    begin += part.size();
  }
  CBT_FUZZ_CHECK(got.code() == want.code());
  CBT_FUZZ_CHECK(cut.log() == whole.log());
  if (got.ok()) CBT_FUZZ_CHECK(splitter.in_line() == in_line);
  whole.CheckStore();
  cut.CheckStore();
  return 0;
}
