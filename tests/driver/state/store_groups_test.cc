// Group snapshots of the driver's store: of one moment, and all or none.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/descriptor.h"
#include "cbt/units.h"
#include "programs/driver/state/catalog.h"
#include "programs/driver/state/store.h"
#include "programs/volume/control.h"
#include "programs/volume/control_lines.h"
#include "programs/volume/snapshot_reader.h"
#include "programs/volume/tracked_volume.h"
#include "tests/support/status.h"
#include "tests/support/temp_dir.h"

namespace cbt::driver {
namespace store_groups_test {

using test::ValueOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using volume::Durability;
using volume::TrackedVolume;

constexpr uint64_t kCapacity = 8 * kMiB;

// A volume as a process serves it while it is attached.
struct Served {
  explicit Served(const std::string& directory)
      : volume(ValueOf(TrackedVolume::Open(directory + "/volume"))),
        server(
            ValueOf(volume::ControlServer::Start(*volume, {.path = directory + "/control.sock"}))) {
  }

  std::unique_ptr<TrackedVolume> volume;
  std::unique_ptr<volume::ControlServer> server;
};

// Writes 1, 2, 3 ... to each volume in turn, until it ends.
class Counting {
 public:
  explicit Counting(std::vector<TrackedVolume*> volumes)
      : volumes_(std::move(volumes)), thread_([this] {
          for (uint64_t next = 1; !ending_.load(); ++next) {
            std::vector<uint8_t> bytes(512);
            std::memcpy(bytes.data(), &next, sizeof(next));
            for (TrackedVolume* const volume : volumes_) {
              EXPECT_OK(volume->Write(0, bytes, Durability::kCached));
            }
            written_.store(next);
          }
        }) {}
  ~Counting() {
    ending_.store(true);
    thread_.join();
  }
  void WaitForAnother() const {
    for (const uint64_t now = written_.load(); written_.load() == now;) std::this_thread::yield();
  }

 private:
  const std::vector<TrackedVolume*> volumes_;
  std::atomic<uint64_t> written_{0};
  std::atomic<bool> ending_{false};
  std::thread thread_;
};

// How far a driver came that was killed.
enum class Kill {
  kRecorded,
  kReserved,
  kFirstCut,
  kAllCut,
  kTaken,  // here the group is there
  kFirstRecorded,
  kGivenUp,  // and here no longer
  kFirstRemoved,
};

class StoreGroupsTest : public testing::Test {
 protected:
  StoreGroupsTest() {
    Restart();
    for (const char* const name : {"a", "b"}) volumes_.push_back(MakeVolume(name));
    std::sort(volumes_.begin(), volumes_.end());
  }

  void Restart() {
    store_.reset();
    store_ = ValueOf(Store::Open(options_));
  }
  std::string MakeVolume(const std::string& name) {
    return ValueOf(store_->CreateVolume({.name = name, .range = {.required = kCapacity}})).id;
  }
  std::string DirectoryOf(const std::string& volume) const {
    return directory_ / ("volumes/" + volume);
  }
  // What the volume itself has, whatever the store says.
  std::vector<std::string> SnapshotsIn(const std::string& volume) const {
    const auto reader = ValueOf(volume::SnapshotReader::Open(DirectoryOf(volume) + "/volume"));
    std::vector<std::string> ids;
    for (const volume::SnapshotInfo& info : reader->snapshots()) ids.push_back(info.id);
    return ids;
  }
  // What a client sees of all snapshots.
  std::vector<Snapshot> Listed() const {
    return store_->catalog().ListSnapshots("", 0, "").entries;
  }
  static std::vector<std::string> IdsOf(const GroupSnapshot& group) {
    std::vector<std::string> ids;
    for (const Snapshot& member : group.members) ids.push_back(member.id);
    return ids;
  }
  // The first bytes of a snapshot that is complete.
  uint64_t NumberIn(const Snapshot& snapshot) const {
    const auto reader =
        ValueOf(volume::SnapshotReader::Open(DirectoryOf(snapshot.volume_id) + "/volume"));
    std::ifstream file(ValueOf(reader->PathOf(snapshot.id)), std::ios::binary);
    uint64_t number = 0;
    file.read(reinterpret_cast<char*>(&number), sizeof(number));
    EXPECT_TRUE(file.good());
    return number;
  }
  void ExpectNothingIsLeft() const {
    EXPECT_THAT(Listed(), IsEmpty());
    EXPECT_THAT(directory_.Names("groups"), IsEmpty());
    for (const std::string& volume : volumes_) {
      EXPECT_THAT(SnapshotsIn(volume), IsEmpty());
      EXPECT_THAT(directory_.Names("volumes/" + volume + "/names"), IsEmpty());
    }
  }

  // Leaves what a driver does that is killed there. Returns the group's id.
  std::string LeaveAt(Kill kill) {
    store_.reset();
    const auto catalog =
        ValueOf(Catalog::Open(options_.state_directory, [](const auto&, const auto&) {}));
    GroupRecord record = {.name = "g"};
    for (const std::string& volume : volumes_) record.members.push_back({.volume_id = volume});
    const std::string id = ValueOf(Catalog::NewGroupId());
    EXPECT_OK(catalog->AddGroup(id, record));
    if (kill == Kill::kRecorded) return id;
    for (GroupMember& member : record.members) {
      member.snapshot_id = ValueOf(
          catalog->ReserveSnapshot(member.volume_id, "\n" + id + "/" + member.volume_id, id));
    }
    if (kill == Kill::kReserved) return id;
    for (GroupMember& member : record.members) {
      const auto volume = ValueOf(TrackedVolume::Open(DirectoryOf(member.volume_id) + "/volume"));
      const auto info = ValueOf(volume->TakeSnapshot(member.snapshot_id));
      EXPECT_TRUE(volume->WaitForCopies(60));
      member.cut = {.created_ns = info.created_ns, .size = info.size};
      if (kill == Kill::kFirstCut) return id;
    }
    if (kill == Kill::kAllCut) return id;
    record.taken = true;
    EXPECT_OK(catalog->ChangeGroup(id, record));
    if (kill == Kill::kTaken) return id;
    for (const GroupMember& member : record.members) {
      EXPECT_OK(catalog->RecordCut(member.snapshot_id, member.cut));
      if (kill == Kill::kFirstRecorded) return id;
    }
    EXPECT_OK(catalog->GiveUpGroup(id));
    if (kill == Kill::kGivenUp) return id;
    const GroupMember& first = record.members.front();
    const auto volume = ValueOf(TrackedVolume::Open(DirectoryOf(first.volume_id) + "/volume"));
    EXPECT_OK(volume->DeleteSnapshot(first.snapshot_id));
    EXPECT_OK(catalog->DropSnapshot(first.snapshot_id));
    return id;
  }

  test::TempDir directory_;
  StoreOptions options_ = {.state_directory = directory_.path(),
                           .report = [](const std::string&, const absl::Status&) {}};
  std::unique_ptr<Store> store_;
  std::vector<std::string> volumes_;
};

TEST_F(StoreGroupsTest, AGroupIsASnapshotOfEachVolume) {
  ASSERT_OK_AND_ASSIGN(const GroupSnapshot group, store_->CreateGroup("g", volumes_));
  ASSERT_THAT(group.members, SizeIs(2));
  for (size_t i = 0; i < group.members.size(); ++i) {
    EXPECT_EQ(group.members[i].volume_id, volumes_[i]);
    EXPECT_EQ(group.members[i].record.group, group.id);
    EXPECT_EQ(group.members[i].record.cut->size, kCapacity);
    EXPECT_THAT(SnapshotsIn(volumes_[i]), ElementsAre(group.members[i].id));
  }
  for (const bool restarted : {false, true}) {
    if (restarted) Restart();
    EXPECT_THAT(Listed(), SizeIs(2));
    // Volumes and members have no order.
    const auto again = ValueOf(store_->CreateGroup("g", {volumes_[1], volumes_[0]}));
    EXPECT_EQ(again.id, group.id);
    EXPECT_EQ(IdsOf(again), IdsOf(group));
    const auto found =
        ValueOf(store_->GetGroup(group.id, {group.members[1].id, group.members[0].id}));
    EXPECT_EQ(IdsOf(found), IdsOf(group));
    EXPECT_TRUE(absl::IsAlreadyExists(store_->CreateGroup("g", {volumes_[0]}).status()));
    EXPECT_TRUE(
        absl::IsInvalidArgument(store_->GetGroup(group.id, {group.members[0].id}).status()));
    EXPECT_TRUE(absl::IsInvalidArgument(store_->DeleteGroup(group.id, {group.members[1].id})));
    EXPECT_OK(store_->GetGroup(group.id, {}));  // the client does not say
  }
  // Another group of them, and a snapshot of the group's name.
  const auto other = ValueOf(store_->CreateGroup("h", volumes_));
  EXPECT_NE(other.id, group.id);
  EXPECT_OK(store_->CreateSnapshot(volumes_[0], "g"));
}

TEST_F(StoreGroupsTest, AMemberGoesWithItsGroupOnly) {
  const GroupSnapshot group = ValueOf(store_->CreateGroup("g", volumes_));
  const absl::Status alone = store_->DeleteSnapshot(group.members[0].id);
  EXPECT_TRUE(absl::IsInvalidArgument(alone));
  EXPECT_THAT(std::string(alone.message()), HasSubstr(group.id));
  ASSERT_OK(store_->DeleteVolume(volumes_[0]));  // snapshots outlive it
  EXPECT_EQ(IdsOf(ValueOf(store_->GetGroup(group.id, IdsOf(group)))), IdsOf(group));
  ASSERT_OK(store_->DeleteGroup(group.id, IdsOf(group)));
  ASSERT_OK(store_->DeleteGroup(group.id, IdsOf(group)));
  EXPECT_TRUE(absl::IsNotFound(store_->GetGroup(group.id, IdsOf(group)).status()));
  EXPECT_THAT(directory_.Names("volumes"), ElementsAre(volumes_[1]));
  volumes_ = {volumes_[1]};
  ExpectNothingIsLeft();
  // Its moment is a base like that of any snapshot.
  const GroupSnapshot next = ValueOf(store_->CreateGroup("g", volumes_));
  EXPECT_NE(next.id, group.id);
  const auto reader = ValueOf(volume::SnapshotReader::Open(DirectoryOf(volumes_[0]) + "/volume"));
  EXPECT_OK(reader->Delta(group.members[1].id, next.members[0].id));
}

TEST_F(StoreGroupsTest, RequestsThatCantBeAreRefused) {
  EXPECT_TRUE(absl::IsInvalidArgument(store_->CreateGroup("g", {}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(store_->CreateGroup("", volumes_).status()));
  EXPECT_TRUE(
      absl::IsInvalidArgument(store_->CreateGroup("g", {volumes_[0], volumes_[0]}).status()));
  const std::string missing = "vol-" + std::string(24, '0');
  EXPECT_TRUE(absl::IsNotFound(store_->CreateGroup("g", {volumes_[0], missing}).status()));
  std::vector<std::string> many;
  for (size_t i = 0; i <= Store::kMaxGroup; ++i) many.push_back(absl::StrCat("vol-", i));
  EXPECT_TRUE(absl::IsInvalidArgument(store_->CreateGroup("g", many).status()));
  const std::string unknown = "group-" + std::string(24, '0');
  EXPECT_TRUE(absl::IsNotFound(store_->GetGroup(unknown, {}).status()));
  EXPECT_OK(store_->DeleteGroup(unknown, {}));
  ExpectNothingIsLeft();
  const Snapshot snapshot = ValueOf(store_->CreateSnapshot(volumes_[0], "s"));
  const auto view = store_->CreateVolume(
      {.name = "view", .view = true, .source = {ContentSource::Kind::kSnapshot, snapshot.id}});
  if (!view.ok()) return;  // it is still being copied
  EXPECT_TRUE(
      absl::IsFailedPrecondition(store_->CreateGroup("g", {volumes_[1], view->id}).status()));
}

TEST_F(StoreGroupsTest, AllMembersAreOfOneMoment) {
  constexpr int kRounds = 10;
  {
    std::vector<std::unique_ptr<Served>> served;
    std::vector<TrackedVolume*> open;
    for (const std::string& volume : volumes_) {
      served.push_back(std::make_unique<Served>(DirectoryOf(volume)));
      open.push_back(served.back()->volume.get());
    }
    // The one that is held and cut last is written to first, or the other way round.
    for (const bool backwards : {false, true}) {
      if (backwards) std::reverse(open.begin(), open.end());
      const Counting counting(open);
      for (int round = 0; round < kRounds; ++round) {
        counting.WaitForAnother();
        ASSERT_OK(store_->CreateGroup(absl::StrCat(backwards, "/", round), volumes_));
      }
    }
    for (TrackedVolume* const volume : open) ASSERT_TRUE(volume->WaitForCopies(60));
  }
  for (const bool backwards : {false, true}) {
    uint64_t before = 0;
    for (int round = 0; round < kRounds; ++round) {
      const auto group =
          ValueOf(store_->CreateGroup(absl::StrCat(backwards, "/", round), volumes_));
      ASSERT_TRUE(group.ready());
      std::array<uint64_t, 2> numbers = {NumberIn(group.members[0]), NumberIn(group.members[1])};
      if (backwards) std::swap(numbers[0], numbers[1]);
      EXPECT_TRUE(numbers[0] == numbers[1] || numbers[0] == numbers[1] + 1)
          << numbers[0] << " " << numbers[1];
      EXPECT_GT(numbers[0], before);
      before = numbers[0];
    }
  }
}

// They meet at the volumes, and never wait for each other.
TEST_F(StoreGroupsTest, GroupsThatShareVolumesAreTakenAtOnce) {
  volumes_.push_back(MakeVolume("c"));
  std::vector<std::unique_ptr<Served>> served;
  std::vector<TrackedVolume*> open;
  for (const std::string& volume : volumes_) {
    served.push_back(std::make_unique<Served>(DirectoryOf(volume)));
    open.push_back(served.back()->volume.get());
  }
  const Counting counting(open);
  std::vector<std::thread> clients;
  for (size_t client = 0; client < volumes_.size(); ++client) {
    clients.emplace_back([&, client] {
      for (int round = 0; round < 5; ++round) {
        const std::string name = absl::StrCat(client, "/", round);
        const auto group =
            store_->CreateGroup(name, {volumes_[client], volumes_[(client + 1) % volumes_.size()]});
        EXPECT_OK(group);
        if (group.ok() && round % 2 == 0) {
          // A copy that ends may be at a member.
          absl::Status deleted = store_->DeleteGroup(group->id, IdsOf(*group));
          while (absl::IsAborted(deleted)) deleted = store_->DeleteGroup(group->id, IdsOf(*group));
          EXPECT_OK(deleted);
        }
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_THAT(Listed(), SizeIs(3 * 2 * 2));
  counting.WaitForAnother();
}

// Groups that were not taken are removed without a caller, but not one that is being taken.
TEST_F(StoreGroupsTest, NobodyHasAGroupBeforeTheCallThatTakesIt) {
  for (int i = 0; i < 30; ++i) {
    const std::string name = absl::StrCat("g", i);
    std::jthread other([&](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
        const std::optional<Group> group = store_->catalog().FindGroupByName(name);
        if (!group.has_value()) continue;
        store_->DeleteGroup(group->id, {}).IgnoreError();
        return;
      }
    });
    const absl::StatusOr<GroupSnapshot> group = store_->CreateGroup(name, {volumes_[0]});
    other = {};
    ASSERT_OK(group) << i << ": " << group.status();
    store_->DeleteGroup(group->id, {}).IgnoreError();
  }
}

TEST_F(StoreGroupsTest, IfOneMemberCantBeCutNoneIs) {
  // The second is open elsewhere, and no server answers for it.
  auto elsewhere = ValueOf(TrackedVolume::Open(DirectoryOf(volumes_[1]) + "/volume"));
  {
    const Served served(DirectoryOf(volumes_[0]));
    const Counting counting({served.volume.get()});
    const absl::Status failed = store_->CreateGroup("g", volumes_).status();
    EXPECT_TRUE(absl::IsUnavailable(failed)) << failed;
    EXPECT_THAT(std::string(failed.message()), HasSubstr(volumes_[1]));
    counting.WaitForAnother();
  }
  EXPECT_THAT(Listed(), IsEmpty());
  ASSERT_OK(elsewhere->Close());
  elsewhere.reset();
  // What could not be removed then is removed by the next call or driver.
  for (const bool restarted : {false, true}) {
    if (restarted) Restart();
    const GroupSnapshot group = ValueOf(store_->CreateGroup("g", volumes_));
    EXPECT_THAT(Listed(), SizeIs(2));
    ASSERT_OK(store_->DeleteGroup(group.id, IdsOf(group)));
  }
  Restart();
  ExpectNothingIsLeft();
}

// It answers "hold" as a request that it does not know.
TEST_F(StoreGroupsTest, AServerOfAnEarlierVersionIsNamed) {
  const OwnedDescriptor listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_un address =
      ValueOf(volume::SocketAddress(DirectoryOf(volumes_[0]) + "/control.sock"));
  ASSERT_EQ(::bind(listener.number(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)),
            0);
  ASSERT_EQ(::listen(listener.number(), 8), 0);
  std::thread server([&] {
    const std::string line = R"({"ok":false,"code":"INVALID_ARGUMENT","message":"which?"})";
    for (;;) {
      const OwnedDescriptor client(::accept(listener.number(), nullptr, nullptr));
      if (!client.has_value()) return;
      std::array<char, 4096> request;
      if (::recv(client.number(), request.data(), request.size(), 0) <= 0) continue;
      EXPECT_GT(::send(client.number(), (line + "\n").data(), line.size() + 1, MSG_NOSIGNAL), 0);
    }
  });
  const absl::Status failed = store_->CreateGroup("g", volumes_).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(failed)) << failed;
  EXPECT_THAT(std::string(failed.message()), HasSubstr("earlier version"));
  EXPECT_THAT(Listed(), IsEmpty());
  EXPECT_THAT(SnapshotsIn(volumes_[1]), IsEmpty());
  ::shutdown(listener.number(), SHUT_RDWR);
  server.join();
}

class KilledGroupTest : public StoreGroupsTest, public testing::WithParamInterface<Kill> {};

TEST_P(KilledGroupTest, TheNextDriverHasAllMembersOrNone) {
  const std::string id = LeaveAt(GetParam());
  Restart();
  const bool there = GetParam() == Kill::kTaken || GetParam() == Kill::kFirstRecorded;
  if (!there) {
    ExpectNothingIsLeft();
    EXPECT_TRUE(absl::IsNotFound(store_->GetGroup(id, {}).status()));
    EXPECT_OK(store_->DeleteGroup(id, {}));
  }
  EXPECT_THAT(Listed(), SizeIs(there ? 2 : 0));
  const GroupSnapshot group = ValueOf(store_->CreateGroup("g", volumes_));
  EXPECT_EQ(group.id == id, there);
  EXPECT_TRUE(group.ready() || !there);
  EXPECT_THAT(Listed(), SizeIs(2));
  for (size_t i = 0; i < volumes_.size(); ++i) {
    EXPECT_THAT(SnapshotsIn(volumes_[i]), ElementsAre(group.members[i].id));
  }
  ASSERT_OK(store_->DeleteGroup(group.id, IdsOf(group)));
  ExpectNothingIsLeft();
}

// The client deletes the volume first, and nothing of the group keeps it.
TEST_P(KilledGroupTest, AVolumeThatIsDeletedLeavesNothing) {
  LeaveAt(GetParam());
  Restart();
  for (const std::string& volume : volumes_) ASSERT_OK(store_->DeleteVolume(volume));
  for (const Snapshot& snapshot : Listed()) EXPECT_OK(store_->GetSnapshot(snapshot.id));
  EXPECT_THAT(directory_.Names("volumes"), SizeIs(Listed().size()));
}

INSTANTIATE_TEST_SUITE_P(Everywhere, KilledGroupTest,
                         testing::Values(Kill::kRecorded, Kill::kReserved, Kill::kFirstCut,
                                         Kill::kAllCut, Kill::kTaken, Kill::kFirstRecorded,
                                         Kill::kGivenUp, Kill::kFirstRemoved));

TEST_F(StoreGroupsTest, AGroupThatWasRecordedTwiceKeepsTheOneThatWasTaken) {
  const std::string untaken = LeaveAt(Kill::kRecorded);
  const auto bytes = EncodeGroup({.name = "g"});
  Restart();
  const GroupSnapshot group = ValueOf(store_->CreateGroup("g", volumes_));
  store_.reset();
  // Before and after it, in the order in which files are listed.
  for (const char digit : {'0', 'f'}) {
    directory_.Write("groups/group-" + std::string(24, digit),
                     std::string(bytes.begin(), bytes.end()));
  }
  Restart();
  EXPECT_EQ(ValueOf(store_->CreateGroup("g", volumes_)).id, group.id);
  EXPECT_THAT(directory_.Names("groups"), ElementsAre(group.id));
  EXPECT_NE(group.id, untaken);
}

TEST_F(StoreGroupsTest, AGroupWhoseRecordIsDamagedIsLeftAlone) {
  for (const Kill kill : {Kill::kAllCut, Kill::kTaken}) {
    const std::string id = LeaveAt(kill);
    directory_.Write("groups/" + id, "rubbish");
    Restart();
    // No client knows of its members.
    EXPECT_THAT(Listed(), IsEmpty());
    EXPECT_TRUE(absl::IsDataLoss(store_->GetGroup(id, {}).status()));
    EXPECT_TRUE(absl::IsDataLoss(store_->DeleteGroup(id, {})));
    EXPECT_THAT(directory_.Names("groups"), testing::Contains(id));
  }
  const GroupSnapshot group = ValueOf(store_->CreateGroup("other", volumes_));
  directory_.Write("groups/" + group.id, "rubbish");
  Restart();
  // Clients know of these; each is a snapshot that can be deleted.
  EXPECT_THAT(Listed(), SizeIs(2));
  for (const Snapshot& member : group.members) {
    EXPECT_OK(store_->GetSnapshot(member.id));
    EXPECT_OK(store_->DeleteSnapshot(member.id));
  }
}

TEST_F(StoreGroupsTest, AGroupWithALostMemberCanBeDeletedByWhatTheErrorSays) {
  const GroupSnapshot group = ValueOf(store_->CreateGroup("g", volumes_));
  store_.reset();
  {
    const auto volume = ValueOf(TrackedVolume::Open(DirectoryOf(volumes_[1]) + "/volume"));
    EXPECT_OK(volume->DeleteSnapshot(group.members[1].id));
  }
  Restart();
  for (const absl::Status& lost : {store_->CreateGroup("g", volumes_).status(),
                                   store_->GetGroup(group.id, IdsOf(group)).status()}) {
    EXPECT_TRUE(absl::IsDataLoss(lost)) << lost;
    EXPECT_THAT(std::string(lost.message()), HasSubstr(group.id));
  }
  EXPECT_OK(store_->DeleteGroup(group.id, {}));
  ExpectNothingIsLeft();
}

// No client knows its id yet, so none could delete it.
TEST_F(StoreGroupsTest, AGroupThatCouldNotBeCompletedIsRemovedAndTakenAgain) {
  for (const Kill kill : {Kill::kTaken, Kill::kFirstRecorded}) {
    const std::string id = LeaveAt(kill);
    {
      // As its copy does where the disk is full.
      const auto volume = ValueOf(TrackedVolume::Open(DirectoryOf(volumes_[1]) + "/volume"));
      EXPECT_OK(volume->DeleteSnapshot(SnapshotsIn(volumes_[1]).front()));
    }
    Restart();
    const absl::Status removed = store_->CreateGroup("g", volumes_).status();
    EXPECT_TRUE(absl::IsUnavailable(removed)) << removed;
    ExpectNothingIsLeft();
    const GroupSnapshot group = ValueOf(store_->CreateGroup("g", volumes_));
    EXPECT_NE(group.id, id);
    ASSERT_OK(store_->DeleteGroup(group.id, IdsOf(group)));
  }
}

// A member whose volume is left alone may be whole.
TEST_F(StoreGroupsTest, AGroupThatIsNotKnownToBeLostStays) {
  const std::string id = LeaveAt(Kill::kFirstRecorded);
  const std::string record = "volumes/" + volumes_[1] + "/RECORD";
  std::filesystem::copy_file(directory_ / record, directory_ / "kept");
  directory_.Write(record, "rubbish");
  Restart();
  EXPECT_FALSE(store_->CreateGroup("g", volumes_).ok());
  store_.reset();
  std::filesystem::rename(directory_ / "kept", directory_ / record);
  Restart();
  EXPECT_EQ(ValueOf(store_->CreateGroup("g", volumes_)).id, id);
}

TEST_F(StoreGroupsTest, WhatAKilledDriverDidNotFinishWritingIsRemoved) {
  directory_.Write("groups/.group-0.1-2.partial", "rubbish");
  Restart();
  ExpectNothingIsLeft();
}

TEST_F(StoreGroupsTest, AMemberWhoseVolumeIsDamagedKeepsItsGroup) {
  const GroupSnapshot group = ValueOf(store_->CreateGroup("g", volumes_));
  store_.reset();
  const std::string record = "volumes/" + volumes_[1] + "/RECORD";
  const std::string whole = directory_ / record;
  std::filesystem::copy_file(whole, directory_ / "kept");
  directory_.Write(record, "rubbish");
  Restart();
  EXPECT_TRUE(absl::IsDataLoss(store_->GetGroup(group.id, IdsOf(group)).status()));
  EXPECT_TRUE(absl::IsDataLoss(store_->DeleteGroup(group.id, IdsOf(group))));
  EXPECT_THAT(Listed(), SizeIs(1));
  store_.reset();
  std::filesystem::rename(directory_ / "kept", whole);
  Restart();
  EXPECT_EQ(IdsOf(ValueOf(store_->GetGroup(group.id, IdsOf(group)))), IdsOf(group));
  ASSERT_OK(store_->DeleteGroup(group.id, IdsOf(group)));
  ExpectNothingIsLeft();
}

}  // namespace store_groups_test
}  // namespace cbt::driver
