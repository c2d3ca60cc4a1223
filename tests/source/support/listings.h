// Writers of storage systems' listings for tests: a set of units in each system's format.
#ifndef CBT_TESTS_SOURCE_SUPPORT_LISTINGS_H_
#define CBT_TESTS_SOURCE_SUPPORT_LISTINGS_H_

#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "cbt/change_map.h"
#include "cbt/source/byte_stream.h"
#include "cbt/source/lists.h"
#include "cbt/wire/digest.h"
#include "tests/reference/volume.h"

namespace cbt::test {

// Takes ranges in units and the volume's number of units.
using Writer = std::function<std::string(const reference::Ranges&, uint64_t units)>;
using Reader = std::function<absl::StatusOr<ChangeMap>(ByteStream&, ImportOptions)>;

struct Listing {
  std::string name;
  uint64_t unit;   // in bytes
  bool any_order;  // ranges may come in any order
  Writer write;
  Reader read;
};

inline std::string Text(uint64_t number) { return std::to_string(number); }

template <typename Number>
void PutLe(std::string& out, Number number) {
  char bytes[sizeof(number)];
  std::memcpy(bytes, &number, sizeof(number));
  out.append(bytes, sizeof(number));
}

inline std::string WriteRbdDiff(const reference::Ranges& ranges, uint64_t units) {
  std::string out = "rbd diff v1\n";
  for (const auto& [tag, name] : {std::pair('f', "mon"), std::pair('t', "tue")}) {
    out.push_back(tag);
    PutLe<uint32_t>(out, 3);
    out += name;
  }
  out.push_back('s');
  PutLe<uint64_t>(out, units);
  bool data = false;
  for (const auto& [offset, length] : ranges) {
    out.push_back(data ? 'w' : 'z');
    PutLe<uint64_t>(out, offset);
    PutLe<uint64_t>(out, length);
    if (data) out.append(static_cast<size_t>(length), 'e');
    data = !data;
  }
  return out + "e";
}

inline std::string WriteRbdJson(const reference::Ranges& ranges, uint64_t) {
  std::string out = "[";
  bool exists = true;
  for (const auto& [offset, length] : ranges) {
    if (out.size() > 1) out += ",";
    out += "{\"offset\":" + Text(offset) + ",\"length\":" + Text(length) + ",\"exists\":";
    out += exists ? "\"true\"}" : "false}";
    exists = !exists;
  }
  return out + "]";
}

inline std::string WriteQemuMap(const reference::Ranges& ranges, uint64_t units) {
  std::string out = "[";
  uint64_t at = 0;
  const auto entry = [&](uint64_t length, bool changed) {
    if (length == 0) return;
    if (out.size() > 1) out += ",\n";
    out += "{ \"start\": " + Text(at * 512) + ", \"length\": " + Text(length * 512) +
           ", \"depth\": " + (changed ? "0" : "1") + ", \"present\": true, \"zero\": " +
           (changed && at % 2 == 0 ? "true, \"data\": false"
                                   : "false, \"data\": true, \"offset\": 7") +
           ", \"more\": [1.5, {\"a\": null}]}";
    at += length;
  };
  for (const auto& [offset, length] : ranges) {
    entry(offset - at, false);
    entry(length, true);
  }
  entry(units - at, false);
  return out + "]";
}

inline std::string WriteThinDelta(const reference::Ranges& ranges, bool verbose) {
  static constexpr const char* kKinds[] = {"different", "left_only", "right_only"};
  std::string out =
      "<superblock uuid=\"\" time=\"3\" transaction=\"2\" data_block_size=\"8\" "
      "nr_data_blocks=\"0\">\n  <diff left=\"1\" right=\"2\">\n    <same begin=\"0\" "
      "length=\"1\"/>\n";
  size_t kind = 0;
  for (const auto& [begin, length] : ranges) {
    const std::string name = kKinds[kind++ % 3];
    const std::string range =
        " begin=\"" + Text(begin) + "\" data_begin=\"9\" length=\"" + Text(length) + "\"/>";
    out += verbose ? "<" + name + ">\n<range" + range + "</" + name + ">\n" : "<" + name + range;
  }
  return out + "</diff></superblock>";
}

inline std::string WriteThinDump(const reference::Ranges& ranges, uint64_t) {
  uint64_t blocks = 0;
  std::string mappings;
  for (const auto& [begin, length] : ranges) {
    mappings +=
        length == 1
            ? "<single_mapping origin_block=\"" + Text(begin) + "\" data_block=\"5\" time=\"0\"/>\n"
            : "<range_mapping origin_begin=\"" + Text(begin) + "\" data_begin=\"5\" length=\"" +
                  Text(length) + "\" time=\"0\"/>\n";
    blocks += length;
  }
  return "<superblock data_block_size=\"8\" nr_data_blocks=\"0\"><device dev_id=\"1\" "
         "mapped_blocks=\"1\"><single_mapping origin_block=\"0\"/></device>\n<device dev_id=\"7\" "
         "mapped_blocks=\"" +
         Text(blocks) + "\">" + mappings + "</device></superblock>";
}

inline std::string WriteEraInvalidate(const reference::Ranges& ranges, uint64_t) {
  std::string out = "<blocks>\n";
  for (const auto& [begin, length] : ranges) {
    out += length == 1 ? "  <block block=\"" + Text(begin) + "\"/>\n"
                       : "  <range begin=\"" + Text(begin) + "\" end = \"" + Text(begin + length) +
                             "\"/>\n";
  }
  return out + "</blocks>";
}

// A writeset as era_dump shows it: every bit, in order.
inline std::string Writeset(uint64_t era, const std::vector<bool>& bits) {
  std::string out = "<writeset era=\"" + Text(era) + "\" nr_bits=\"" + Text(bits.size()) + "\">\n";
  for (size_t i = 0; i < bits.size(); ++i) {
    out += "<bit block=\"" + Text(i) + "\" value=\"" + (bits[i] ? "true" : "false") + "\"/>\n";
  }
  return out + "</writeset>\n";
}

// The ranges alternate between a writeset and the era array.
inline std::string WriteEraDump(const reference::Ranges& ranges, uint64_t units) {
  std::vector<int> era(static_cast<size_t>(units), 2);
  std::vector<bool> written(static_cast<size_t>(units));
  bool in_array = false;
  for (const auto& [begin, length] : ranges) {
    for (uint64_t i = begin; i < begin + length; ++i) {
      if (in_array) era[static_cast<size_t>(i)] = 3;
      if (!in_array) written[static_cast<size_t>(i)] = true;
    }
    in_array = !in_array;
  }
  const std::vector<bool> none(static_cast<size_t>(units));
  const std::vector<bool> all(static_cast<size_t>(units), true);
  std::string out = "<superblock uuid=\"\" block_size=\"8\" nr_blocks=\"" + Text(units) +
                    "\" current_era=\"4\">" + Writeset(2, all) + Writeset(3, none) +
                    Writeset(4, written) + "<era_array>";
  for (size_t i = 0; i < era.size(); ++i) {
    out += "<era block=\"" + Text(i) + "\" era=\"" + Text(static_cast<uint64_t>(era[i])) + "\"/>\n";
  }
  return out + "</era_array></superblock>";
}

// Pages of three blocks; every third page is empty.
inline std::string WriteEbs(const reference::Ranges& ranges, uint64_t) {
  std::vector<std::string> pages(1);
  size_t in_page = 0;
  for (const auto& [begin, length] : ranges) {
    for (uint64_t i = begin; i < begin + length; ++i) {
      if (in_page == 3) {
        pages.emplace_back();
        if (pages.size() % 3 == 0) pages.emplace_back();
        in_page = 0;
      }
      if (in_page++ > 0) pages.back() += ",";
      pages.back() += "{\"BlockIndex\": " + Text(i) + ",\"FirstBlockToken\":\"AAAB\"}";
    }
  }
  std::string out;
  for (size_t i = 0; i < pages.size(); ++i) {
    const std::string size = "\"BlockSize\": 524288";
    out += "{";
    if (i % 2 == 0) out += size + ",";
    out += "\"ChangedBlocks\": [" + pages[i] + "], \"ExpiryTime\": 1.6e9, \"NextToken\": ";
    out += i + 1 < pages.size() ? "\"AAA\"" : "null";
    if (i % 2 == 1) out += "," + size;
    out += "}\n";
  }
  out.pop_back();
  return out;
}

// One answer for every seven bytes of the volume.
inline std::string WriteVmware(const reference::Ranges& ranges, uint64_t units) {
  constexpr uint64_t kStep = 7;
  std::string out = "[";
  for (uint64_t at = 0; at == 0 || at < units; at += kStep) {
    const uint64_t end = at + kStep < units ? at + kStep : units;
    std::string areas;
    for (const auto& [offset, length] : ranges) {
      const uint64_t from = offset > at ? offset : at;
      const uint64_t to = offset + length < end ? offset + length : end;
      if (from >= to) continue;
      if (!areas.empty()) areas += ",";
      areas += "{\"_typeName\":\"DiskChangeExtent\",\"start\":" + Text(from) +
               ",\"length\":" + Text(to - from) + "}";
    }
    if (at > 0) out += ",";
    out += "{\"startOffset\":" + Text(at) + ",\"changedArea\":[" + areas +
           "],\"length\":" + Text(end - at) + "}";
  }
  return out + "]";
}

// The output of the cbt command; see docs/reference/answers.md.
inline std::string MarkerOf(const reference::Ranges& ranges) {
  StreamDigest digest;
  for (const auto& [offset, length] : ranges) digest.Add({&offset, 1}, {&length, 1});
  return "\"tuples\":" + Text(digest.tuples()) + ",\"bytes\":" + Text(digest.bytes()) +
         ",\"digest\":\"xxh3-64:" + digest.DigestText() + "\"";
}

inline std::string TupleOf(const std::pair<uint64_t, uint64_t>& range) {
  return "{\"byte_offset\":" + Text(range.first) + ",\"size_bytes\":" + Text(range.second) + "}";
}

inline std::string AnswerHeader(uint64_t units) {
  return "{\"block_metadata_type\":\"VARIABLE_LENGTH\",\"volume_capacity_bytes\":" + Text(units);
}

inline std::string WriteNdjson(const reference::Ranges& ranges, uint64_t units) {
  std::string out = AnswerHeader(units) + "}\n";
  for (const auto& range : ranges) out += TupleOf(range) + "\n";
  return out + "{\"complete\":true," + MarkerOf(ranges) + "}";
}

// Two tuples per object.
inline std::string WriteJson(const reference::Ranges& ranges, uint64_t units) {
  std::string out = AnswerHeader(units) + ",\"block_metadata\":[";
  for (size_t i = 0; i < ranges.size(); ++i) {
    if (i > 0) out += i % 2 == 0 ? "]}\n" + AnswerHeader(units) + ",\"block_metadata\":[" : ",";
    out += TupleOf(ranges[i]);
  }
  return out + "]," + MarkerOf(ranges) + ",\"complete\":true}";
}

inline std::string WriteCsv(const reference::Ranges& ranges, uint64_t) {
  std::string out = "byte_offset,size_bytes\n";
  for (const auto& [offset, length] : ranges) out += Text(offset) + "," + Text(length) + "\n";
  return out + "complete," + Text(ranges.size()) + "\n";
}

inline std::vector<Listing> Listings() {
  const auto delta = [](auto read) {
    return [read](ByteStream& stream, ImportOptions options) {
      options.purpose = SourcePurpose::kDelta;
      return read(stream, options);
    };
  };
  return {
      {"RbdDiff", 1, true, WriteRbdDiff,
       delta([](ByteStream& stream, const ImportOptions& options) {
         return ReadRbdDiff(stream, {.import = options});
       })},
      {"RbdJson", 1, true, WriteRbdJson, delta(ReadRbdDiffJson)},
      {"QemuMap", 512, false, WriteQemuMap, delta(ReadQemuMap)},
      {"ThinDelta", 4096, true,
       [](const reference::Ranges& ranges, uint64_t) { return WriteThinDelta(ranges, false); },
       delta(ReadThinDelta)},
      {"ThinDeltaVerbose", 4096, true,
       [](const reference::Ranges& ranges, uint64_t) { return WriteThinDelta(ranges, true); },
       delta(ReadThinDelta)},
      {"ThinDump", 4096, true, WriteThinDump,
       [](ByteStream& stream, const ImportOptions& options) {
         return ReadThinDump(stream, {.import = options, .device = 7});
       }},
      {"EraInvalidate", 4096, true, WriteEraInvalidate,
       [](ByteStream& stream, const ImportOptions& options) {
         return ReadEraInvalidate(
             stream, {.import = options, .block_size = 4096, .empty_is_unwritten = true});
       }},
      {"EraDump", 4096, true, WriteEraDump,
       [](ByteStream& stream, const ImportOptions& options) {
         return ReadEraDump(stream, {.import = options, .since_era = 3});
       }},
      {"Ebs", 524288, true, WriteEbs, delta(ReadEbsPages)},
      {"Vmware", 1, false, WriteVmware, delta(ReadVmwareAreas)},
      {"Ndjson", 1, false, WriteNdjson, delta(ReadNdjsonAnswer)},
      {"Json", 1, false, WriteJson, delta(ReadJsonAnswer)},
      {"Csv", 1, false, WriteCsv, delta(ReadCsvAnswer)},
  };
}

}  // namespace cbt::test

#endif  // CBT_TESTS_SOURCE_SUPPORT_LISTINGS_H_
