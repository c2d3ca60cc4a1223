// Files with valid checksums but an invalid structure. Every reader must refuse them; a bitmap that
// is accepted must equal the oracle's. CBT_TEST_SCALE=50 makes a million of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/manifest_bytes.h"
#include "cbt/change_map_file.h"
#include "map/map_file.h"
#include "tests/map/maps.h"
#include "tests/reference/portable_roaring.h"
#include "tests/support/cursors.h"
#include "tests/support/figures.h"
#include "tests/support/memory_file.h"
#include "tests/support/seeded_random.h"
#include "tests/support/status.h"

namespace cbt {
namespace lies_test {

using test::Blocks;
using test::ValueOf;
using Bytes = std::vector<uint8_t>;

constexpr VolumeGeometry kVolume = {uint64_t{1} << 46, 4096};  // 2^34 blocks

void Put(Bytes& bytes, uint64_t number, unsigned size) {
  for (unsigned i = 0; i < size; ++i) bytes.push_back(static_cast<uint8_t>(number >> 8 * i));
}

template <typename T>
void Set(Bytes& bytes, size_t at, T number) {
  ASSERT_LE(at + sizeof(number), bytes.size());
  std::memcpy(bytes.data() + at, &number, sizeof(number));
}

// A container and everything that its writer claims about it, true or not.
struct Box {
  uint64_t key = 0;
  uint64_t stated = 0;  // cardinality
  bool run = false;
  Bytes data;
  int64_t shift = 0;  // added to its offset
};

Box Array(uint64_t key, const std::vector<unsigned>& values) {
  Box box{key, values.size(), false, {}, 0};
  for (const unsigned value : values) Put(box.data, value, 2);
  return box;
}

// Pairs of first value and count of further values.
Box Runs(uint64_t key, const std::vector<std::pair<unsigned, unsigned>>& runs) {
  Box box{key, 0, true, {}, 0};
  Put(box.data, runs.size(), 2);
  for (const auto& [first, more] : runs) {
    Put(box.data, first, 2);
    Put(box.data, more, 2);
    box.stated += more + 1;
  }
  return box;
}

// Every `every`-th value.
Box Bits(uint64_t key, unsigned every) {
  Box box{key, 0, false, Bytes(8192), 0};
  for (unsigned v = 0; v < 65536; v += every, ++box.stated) {
    box.data[v / 8] = static_cast<uint8_t>(box.data[v / 8] | 1u << v % 8);
  }
  return box;
}

// The bitmap of one group, as its writer wants it.
struct Group {
  uint64_t high = 0;
  std::vector<Box> boxes;
  std::optional<uint64_t> count = std::nullopt;   // of containers
  std::optional<uint64_t> cookie = std::nullopt;  // the whole word
  std::optional<bool> offsets = std::nullopt;     // whether they are present
  uint64_t flags = 0;                             // XORed into the last byte of the run flags
};

Bytes Payload(const std::vector<Group>& groups, std::optional<uint64_t> count = std::nullopt) {
  Bytes bytes;
  Put(bytes, count.value_or(groups.size()), 8);
  for (const Group& group : groups) {
    Put(bytes, group.high, 4);
    const size_t begin = bytes.size();
    const bool runs = std::ranges::any_of(group.boxes, [](const Box& box) { return box.run; });
    const uint64_t boxes = group.count.value_or(group.boxes.size());
    Put(bytes, group.cookie.value_or(runs ? 12347 | (boxes - 1) << 16 : 12346), 4);
    if (runs) {
      Bytes flags((group.boxes.size() + 7) / 8);
      for (size_t i = 0; i < group.boxes.size(); ++i) {
        if (group.boxes[i].run) flags[i / 8] = static_cast<uint8_t>(flags[i / 8] | 1u << i % 8);
      }
      flags.back() = static_cast<uint8_t>(flags.back() ^ group.flags);
      bytes.insert(bytes.end(), flags.begin(), flags.end());
    } else {
      Put(bytes, boxes, 4);
    }
    for (const Box& box : group.boxes) {
      Put(bytes, box.key, 2);
      Put(bytes, box.stated - 1, 2);
    }
    if (group.offsets.value_or(!runs || group.boxes.size() >= 4)) {
      uint64_t at = bytes.size() - begin + 4 * group.boxes.size();
      for (const Box& box : group.boxes) {
        Put(bytes, at + static_cast<uint64_t>(box.shift), 4);
        at += box.data.size();
      }
    }
    for (const Box& box : group.boxes) {
      bytes.insert(bytes.end(), box.data.begin(), box.data.end());
    }
  }
  return bytes;
}

// A sealed file around a payload.
Bytes File(const Bytes& payload, uint64_t cardinality, const VolumeGeometry& geometry = kVolume) {
  ChangeMapHeader header;
  header.geometry = geometry;
  header.identity = {"vol", "mon", "tue"};  // 9 bytes, 7 of padding
  header.cardinality = cardinality;
  Bytes file = ValueOf(EncodeMapHeader(header, payload));
  file.insert(file.end(), payload.begin(), payload.end());
  return file;
}

// Recomputes the header's checksum, at the end that the header claims if possible.
void Seal(Bytes& file, size_t header) {
  uint32_t said;
  std::memcpy(&said, file.data() + 12, sizeof(said));
  const size_t end = said >= 88 && said <= file.size() ? said : header;
  Set(file, end - 8, Checksum({file.data(), end - 8}));
}

// ---- handmade

struct Lie {
  std::string name;
  Bytes file;
  Bytes payload;  // if the lie is in the payload, it is also read alone
};

// Valid boxes of all kinds, so that a lie is surrounded by valid ones.
std::vector<Box> Sound() {
  return {Array(0, {1, 5, 9}), Runs(1, {{10, 5}, {20, 0}}), Bits(2, 3), Array(7, {0, 65535}),
          Runs(9, {{65530, 5}})};
}

uint64_t StatedBlocks(const std::vector<Group>& groups) {
  uint64_t blocks = 0;
  for (const Group& group : groups) {
    for (const Box& box : group.boxes) blocks += box.stated;
  }
  return blocks;
}

class Lies {
 public:
  std::vector<Lie> All() {
    Containers();
    Tables();
    Groups();
    Headers();
    return std::move(lies_);
  }

 private:
  void AddGroups(const std::string& name, const std::vector<Group>& groups,
                 std::optional<uint64_t> count = std::nullopt) {
    const Bytes payload = Payload(groups, count);
    lies_.push_back({name, File(payload, StatedBlocks(groups)), payload});
  }
  void AddPayload(const std::string& name, const Bytes& payload, uint64_t cardinality) {
    lies_.push_back({name, File(payload, cardinality), payload});
  }
  // The box at every position among valid ones of the same group.
  void AddBox(const std::string& name, const Box& box) {
    AddGroups(name + ", alone", {{0, {box}}});
    std::vector<Box> first = Sound();
    first[0] = box;
    first[0].key = 0;
    AddGroups(name + ", first", {{0, first}});
    std::vector<Box> last = Sound();
    last[4] = box;
    last[4].key = 9;
    AddGroups(name + ", last", {{0, last}});
    AddGroups(name + ", in another group", {{0, Sound()}, {1, last}});
  }

  void Containers() {
    AddBox("an array that descends", Array(0, {9, 5, 1}));
    AddBox("an array of one value three times", Array(0, {5, 5, 5}));
    AddBox("an array whose last value repeats", Array(0, {1, 2, 3, 4, 5, 6, 7, 8, 9, 9}));
    AddBox("an array whose first values are swapped", Array(0, {2, 1, 3, 4, 5, 6, 7, 8, 9}));
    std::vector<unsigned> many(4096);
    for (unsigned i = 0; i < many.size(); ++i) many[i] = 2 * i;
    std::swap(many[2047], many[2048]);
    AddBox("a full array with two values swapped", Array(0, many));
    std::sort(many.begin(), many.end());
    many.push_back(60'000);
    AddBox("an array of 4097 values", Array(0, many));
    Box box = Array(0, {1, 5, 9});
    box.stated = 4;
    AddBox("an array that says one value more", box);
    box.stated = 2;
    AddBox("an array that says one value less", box);
    box.stated = 65536;
    AddBox("an array that says all values", box);

    box = Bits(0, 16);  // 4096 values
    AddBox("a bitset of as many values as an array has", box);
    box = Bits(0, 3);
    ++box.stated;
    AddBox("a bitset that says one block more", box);
    box.stated -= 2;
    AddBox("a bitset that says one block less", box);
    box.stated = 65536;
    AddBox("a bitset that says all blocks", box);
    box.data.assign(8192, 0);
    AddBox("a bitset of zeros that says all blocks", box);
    box.stated = 5000;
    AddBox("a bitset of zeros that says 5000 blocks", box);
    box.data.assign(8192, 0xff);
    AddBox("a bitset of ones that says 5000 blocks", box);
    box = Bits(0, 3);
    box.data.resize(8184);
    AddBox("a bitset that is a word short", box);
    box.data.resize(8200);
    AddBox("a bitset that is a word long", box);

    AddBox("runs that descend", Runs(0, {{9, 3}, {1, 2}}));
    AddBox("runs that overlap", Runs(0, {{1, 2}, {3, 3}}));
    AddBox("runs that touch", Runs(0, {{1, 2}, {4, 3}}));
    AddBox("a run twice", Runs(0, {{1, 2}, {1, 2}}));
    AddBox("a run inside of another", Runs(0, {{1, 200}, {50, 2}}));
    AddBox("a run past the container", Runs(0, {{65530, 6}}));
    box = Runs(0, {{65530, 65535}});
    box.stated = 65536;
    AddBox("a run around the container", box);
    box = Runs(0, {});
    box.stated = 1;
    AddBox("no runs", box);
    box = Runs(0, {{1, 2}, {9, 3}});
    Set(box.data, 0, uint16_t{3});
    AddBox("more runs than there are", box);
    Set(box.data, 0, uint16_t{1});
    AddBox("fewer runs than there are", box);
    Set(box.data, 0, uint16_t{65535});
    AddBox("65535 runs of two", box);
    box = Runs(0, {{1, 2}, {9, 3}});
    ++box.stated;
    AddBox("runs that say one block more", box);
    box.stated -= 2;
    AddBox("runs that say one block less", box);
    // Made another library write past its memory.
    std::vector<std::pair<unsigned, unsigned>> overlapping;
    for (unsigned i = 0; i < 65535; ++i) overlapping.emplace_back(i, 65535 - i);
    box = Runs(0, overlapping);
    box.stated = 65536;
    AddBox("65535 runs that overlap", box);
  }

  void Tables() {
    const auto with = [&](const std::string& name, const std::function<void(Group&)>& change) {
      Group group{0, Sound()};
      change(group);
      AddGroups(name, {group});
    };
    with("a key twice", [](Group& g) { g.boxes[1].key = 0; });
    with("keys that descend", [](Group& g) { std::swap(g.boxes[3].key, g.boxes[4].key); });
    with("a last key before the others", [](Group& g) { g.boxes[4].key = 0; });
    with("one container more than there is", [](Group& g) { g.count = 6; });
    with("one container less than there is", [](Group& g) { g.count = 4; });
    with("one container", [](Group& g) { g.count = 1; });
    with("65536 containers", [](Group& g) { g.count = 65536; });
    with("a cookie of another format", [](Group& g) { g.cookie = 12345; });
    with("a cookie of none", [](Group& g) { g.cookie = 0; });
    with("the cookie of bitmaps without runs", [](Group& g) { g.cookie = 12346; });
    with("run flags that are missing", [](Group& g) { g.flags = 0x02; });
    with("run flags of an array", [](Group& g) { g.flags = 0x01; });
    with("run flags of a container that is not there", [](Group& g) { g.flags = 0x20; });
    with("run flags of the last place", [](Group& g) { g.flags = 0x80; });
    with("no offsets where there must be some", [](Group& g) { g.offsets = false; });
    for (const int64_t by : {-8192, -2, -1, 1, 2, 8192, 1 << 30}) {
      for (const size_t which : {0u, 2u, 4u}) {
        with(absl::StrCat("offset ", which, " is off by ", by),
             [=](Group& g) { g.boxes[which].shift = by; });
      }
    }
    with("two offsets swapped", [](Group& g) {
      const auto size = static_cast<int64_t>(g.boxes[0].data.size());
      g.boxes[0].shift = size;
      g.boxes[1].shift = -size;
    });
    with("a gap between containers", [](Group& g) { g.boxes[1].data.push_back(0); });

    Group few{0, {Array(0, {1}), Runs(1, {{3, 4}})}};
    few.offsets = true;
    AddGroups("offsets where there must be none", {few});
    Group plain{0, {Array(0, {1}), Array(1, {2})}};
    plain.offsets = false;
    AddGroups("no offsets without runs", {plain});
    plain.offsets = std::nullopt;
    for (const uint64_t count :
         {uint64_t{0}, uint64_t{1}, uint64_t{3}, uint64_t{65537}, uint64_t{0x7fffffff},
          uint64_t{0x80000000}, uint64_t{0xffffffff}}) {
      plain.count = count;
      AddGroups(absl::StrCat(count, " containers of two, without runs"), {plain});
    }
    plain.count = std::nullopt;
    plain.cookie = 12347 | 1 << 16;
    AddGroups("the cookie of bitmaps with runs", {plain});
    plain.cookie = 12346 | 1 << 16;
    AddGroups("a cookie with something in its upper half", {plain});
  }

  void Groups() {
    const Group low{0, Sound()};
    const Group high{2, Sound()};
    AddGroups("groups that descend", {high, low});
    AddGroups("a group twice", {low, low});
    AddGroups("one group more than there is", {low, high}, 3);
    AddGroups("one group less than there is", {low, high}, 1);
    AddGroups("no groups, and yet some", {low, high}, 0);
    for (const uint64_t count : {uint64_t{1} << 32, uint64_t{1} << 61, ~uint64_t{0}}) {
      AddGroups(absl::StrCat(count, " groups"), {low, high}, count);
    }
    AddGroups("a group past the volume", {low, {4, {Array(0, {0})}}});
    AddGroups("a group far past the volume", {low, {0xffffffff, {Array(65535, {65535})}}});
    const Bytes sound = Payload({low, high});
    const uint64_t blocks = 2 * StatedBlocks({low});
    for (const size_t less : {1u, 2u, 8u, 100u, 8192u}) {
      AddPayload(absl::StrCat("a payload without its last ", less),
                 {sound.begin(), sound.end() - static_cast<std::ptrdiff_t>(less)}, blocks);
    }
    for (const size_t more : {1u, 2u, 8u, 100u, 8192u, 70'000u}) {
      Bytes longer = sound;
      longer.resize(sound.size() + more);
      AddPayload(absl::StrCat("a payload with ", more, " trailing zeros"), longer, blocks);
    }
    AddPayload("no payload", {}, 0);
    AddPayload("a payload of 7 bytes", Bytes(7), 0);
    Bytes twice = sound;
    twice.insert(twice.end(), sound.begin(), sound.end());
    AddPayload("a payload twice", twice, 2 * blocks);
    // The block past the last one, whole or partial.
    const Bytes last = Payload({{0, {Array(0, {1, 100})}}});
    for (const uint64_t capacity : {100 * 4096u, 99 * 4096u + 1u, 4096u, 1u, 0u}) {
      lies_.push_back({absl::StrCat("a block past the capacity of ", capacity),
                       File(last, 2, {capacity, 4096}),
                       {}});
    }
  }

  // One header field, sealed again.
  template <typename T>
  void Field(const std::string& name, size_t at, std::initializer_list<T> values) {
    for (const T value : values) {
      Bytes file = File(Payload({{0, Sound()}}), StatedBlocks({{0, Sound()}}));
      const Bytes sound = file;
      Set(file, at, value);
      ASSERT_NE(file, sound) << name << ' ' << value;
      Seal(file, 80 + 16 + 8 + 8);
      lies_.push_back({absl::StrCat(name, " ", value), file, {}});
    }
  }

  void Headers() {
    const uint64_t blocks = StatedBlocks({{0, Sound()}});
    const uint64_t payload = Payload({{0, Sound()}}).size();
    Field<uint64_t>("magic", 0, {0, 0x0a1a0a0d4d424388});
    Field<uint16_t>("major", 8, {0, 2, 0x100, 0xffff});
    Field<uint32_t>("size of the header", 12, {0, 8, 80, 104, 111, 120, 0x7ffffff8, 0xfffffff8});
    Field<uint64_t>("features", 16, {1, uint64_t{1} << 63});
    Field<uint64_t>("capacity", 32, {0, 4096, 65536 * 4096, uint64_t{1} << 63, ~uint64_t{0}});
    Field<uint64_t>("granularity", 40,
                    {0, uint64_t{1} << 45, (uint64_t{1} << 62) + 1, ~uint64_t{0}});
    Field<uint64_t>("blocks", 48, {0, blocks - 1, blocks + 1, blocks << 32, ~uint64_t{0}});
    Field<uint64_t>("size of the payload", 56,
                    {0, payload - 1, payload + 1, payload + 65536, ~uint64_t{0}});
    Field<uint32_t>("size of pieces", 64, {0, 15, 17, 64, 0xffffffff});
    Field<uint16_t>("size of a name", 68, {11, 4096, 4097, 65535});
    Field<uint16_t>("reserved", 74, {1, 0x8000});
    Field<uint32_t>("extension", 76, {1, 4, 8, 16, 0x80000000, 0xfffffff8});
    Field<uint8_t>("a name that is not UTF-8", 80, {0x80, 0xff});
    Field<uint8_t>("a name with a NUL", 81, {0});
    Field<uint8_t>("padding", 95, {1});
    Field<uint64_t>("a digest", 96, {0, 1});

    // Two pieces with swapped digests.
    Group large{0, {}};
    for (uint64_t key = 0; key < 10; ++key) large.boxes.push_back(Bits(key, 3 + key % 2));
    Bytes file = File(Payload({large}), StatedBlocks({large}));
    std::swap_ranges(file.begin() + 96, file.begin() + 104, file.begin() + 104);
    Seal(file, 120);
    lies_.push_back({"digests that are swapped", file, {}});
  }

  std::vector<Lie> lies_;
};

TEST(LiesTest, WhatTheWritersMakeIsSoundWithoutALie) {
  const std::vector<Group> groups = {{0, Sound()}, {1, Sound()}, {3, {Array(65535, {65535})}}};
  const Bytes payload = Payload(groups);
  const absl::StatusOr<ChangeMap> map = DecodeChangeMap(File(payload, StatedBlocks(groups)), "x");
  ASSERT_OK(map);
  EXPECT_EQ(test::BlocksOf(*map), *reference::PortableRoaring::Decode(payload));
}

TEST(LiesTest, EveryStructuralLieUnderGoodChecksumsIsRefused) {
  const test::MemoryFile file;
  const std::vector<Lie> lies = Lies().All();
  uint64_t refused = 0;
  uint64_t readings = 0;
  for (const Lie& lie : lies) {
    bool caught = true;
    const auto refuse = [&](const char* how, const absl::Status& status) {
      ++readings;
      EXPECT_FALSE(status.ok()) << lie.name << ", " << how;
      caught = caught && !status.ok();
    };
    refuse("decoded", DecodeChangeMap(lie.file, "x").status());
    file.Write(lie.file);
    refuse("read", ReadChangeMap(file.path()).status());
    const absl::StatusOr<std::unique_ptr<ExtentCursor>> lazy = OpenChangeMapCursor(file.path());
    refuse("read lazily", lazy.ok() ? test::Drain(**lazy, 1000).status() : lazy.status());
    if (!lie.payload.empty()) {
      EXPECT_FALSE(reference::PortableRoaring::Decode(lie.payload).has_value() &&
                   lie.name.find("past the volume") == std::string::npos)
          << lie.name << " is valid for the oracle";
      refuse("as a view", ChangeMapView::Create(lie.payload, kVolume).status());
      refuse("imported", ChangeMap::FromPortable64(lie.payload, kVolume).status());
    }
    refused += caught ? 1 : 0;
  }
  test::PrintFigure("r9_hand_made_lies", lies.size());
  test::PrintFigure("r9_hand_made_lies_refused", refused);
  test::PrintFigure("r9_hand_made_readings", readings);
  EXPECT_GE(lies.size(), 50u);
  EXPECT_EQ(refused, lies.size());
}

// ---- random, by the million

Box AnyBox(std::mt19937_64& random, uint64_t key) {
  const uint64_t kind = random() % 60;
  if (kind == 0) return Bits(key, 1 + static_cast<unsigned>(random() % 15));
  unsigned at = static_cast<unsigned>(random() % 50);
  if (kind % 2 == 0) {
    std::vector<unsigned> values;
    for (uint64_t n = 1 + random() % 12; n > 0; --n) {
      values.push_back(at);
      at += 1 + static_cast<unsigned>(random() % (n % 3 == 0 ? 2000 : 3));
    }
    return Array(key, values);
  }
  std::vector<std::pair<unsigned, unsigned>> runs;
  for (uint64_t n = 1 + random() % 6; n > 0; --n) {
    const auto more = static_cast<unsigned>(random() % 20);
    runs.emplace_back(at, more);
    at += more + 2 + static_cast<unsigned>(random() % 40);
  }
  return Runs(key, runs);
}

// Makes one claim false, or possibly false.
void Distort(std::mt19937_64& random, std::vector<Group>& groups) {
  Group& group = groups[random() % groups.size()];
  Box& box = group.boxes[random() % group.boxes.size()];
  const auto by = static_cast<int64_t>(random() % 5) - 2;
  switch (random() % 14) {
    case 0:
      box.key = (box.key + static_cast<uint64_t>(by)) & 0xffff;
      break;
    case 1:
      box.stated = std::max<uint64_t>(1, (box.stated + static_cast<uint64_t>(by)) & 0xffff);
      break;
    case 2:
      box.run = !box.run;
      break;
    case 3:
      box.shift = by;
      break;
    case 4:
      group.count = group.boxes.size() + static_cast<uint64_t>(by);
      break;
    case 5:
      group.high += static_cast<uint64_t>(by);
      break;
    case 6:
      std::swap(group, groups[random() % groups.size()]);
      break;
    case 7:
      std::swap(box, group.boxes[random() % group.boxes.size()]);
      break;
    case 8:
      group.flags = uint64_t{1} << random() % 8;
      break;
    case 9:
      group.offsets = random() % 2 == 0;
      break;
    case 10: {
      const size_t size = box.data.size();
      box.data.resize(random() % 2 == 0 ? size + 2 : std::max<size_t>(2, size - 2),
                      static_cast<uint8_t>(random()));
      break;
    }
    case 11:
      box.key = group.boxes[random() % group.boxes.size()].key;
      break;
    default: {  // a number in the container
      const size_t at = random() % (box.data.size() / 2) * 2;
      uint16_t number;
      std::memcpy(&number, box.data.data() + at, 2);
      number = static_cast<uint16_t>(number + by);
      if (random() % 3 == 0) number = static_cast<uint16_t>(random());
      std::memcpy(box.data.data() + at, &number, 2);
    }
  }
}

TEST(LiesTest, GeneratedLiesAreRefusedOrReadAsTheOracleReadsThem) {
  test::SeededRandom random(9);
  const auto count = 20'000 * static_cast<uint64_t>(test::TestScale());
  uint64_t refused = 0;
  uint64_t equal = 0;
  uint64_t wrong = 0;
  for (uint64_t i = 0; i < count && wrong < 10; ++i) {
    std::vector<Group> groups;
    uint64_t high = random() % 2;
    for (uint64_t n = 1 + random() % 2; n > 0; --n, high += 1 + random() % 2) {
      Group group{high, {}};
      uint64_t key = random() % 3;
      for (uint64_t boxes = 1 + random() % 6; boxes > 0; --boxes, key += 1 + random() % 3) {
        group.boxes.push_back(AnyBox(random, key));
      }
      groups.push_back(std::move(group));
    }
    const uint64_t before = StatedBlocks(groups);
    for (uint64_t changes = 1 + random() % 2; changes > 0; --changes) Distort(random, groups);
    Bytes payload = Payload(groups);
    if (random() % 4 == 0) {  // or the raw bytes
      const size_t at = random() % std::min<size_t>(payload.size(), 80);
      payload[at] = static_cast<uint8_t>(payload[at] ^ 1u << random() % 8);
    }
    const std::optional<Blocks> oracle = reference::PortableRoaring::Decode(payload);
    // The header has the true number, or the previous one.
    const uint64_t stated = oracle.has_value() && random() % 4 != 0 ? oracle->size() : before;
    const bool sound = oracle.has_value() && stated == oracle->size() &&
                       (oracle->empty() || oracle->back() < kVolume.capacity / kVolume.granularity);
    const absl::StatusOr<ChangeMap> map = DecodeChangeMap(File(payload, stated), "x");
    if (map.ok() != sound || (sound && test::BlocksOf(*map) != *oracle)) {
      ++wrong;
      ADD_FAILURE() << "lie " << i << ": expected " << (sound ? "the oracle's blocks" : "an error")
                    << ", got " << (map.ok() ? "a map" : map.status().ToString());
    } else {
      ++(sound ? equal : refused);
    }
  }
  test::PrintFigure("r9_generated", refused + equal + wrong);
  test::PrintFigure("r9_generated_refused", refused);
  test::PrintFigure("r9_generated_sound_and_equal", equal);
  test::PrintFigure("r9_generated_wrong", wrong);
  EXPECT_GT(refused, count / 3);
}

}  // namespace lies_test
}  // namespace cbt
