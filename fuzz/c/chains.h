// Calls of chains, which need a directory: of several handles on two chains, beside one another.
#ifndef CBT_FUZZ_C_CHAINS_H_
#define CBT_FUZZ_C_CHAINS_H_

#include <cstdint>
#include <cstring>
#include <string>

#include "cbt/c/cbt.h"
#include "fuzz/c/world.h"
#include "fuzz/support/check.h"

namespace cbt::fuzz {

// The id of the newest snapshot; NULL without a chain.
inline const char* Newest(const cbt_chain* chain) {
  const char* id = nullptr;
  CALL(cbt_chain_snapshot_borrowed(chain, cbt_chain_count(chain) - 1, &id, nullptr, &error));
  return id;
}

inline void ChangeChain(World& world, cbt_chain* chain) {
  const uint64_t before = cbt_chain_count(chain);
  const char* const id = world.Snapshot();
  if (world.Byte() % 4 == 0) {
    const cbt_code code = CALL(cbt_chain_remove(chain, id, &error));
    CBT_FUZZ_CHECK(code != CBT_OK || cbt_chain_count(chain) == before - 1);
    return;
  }
  cbt_map* const map = world.maps.At(world.Byte());
  if (world.Byte() % 8 != 0) {
    CALL(cbt_map_set_identity(map, "volume", Newest(chain), id, &error));
  }
  const auto time = static_cast<int64_t>(world.Byte());
  const cbt_code code = time % 2 == 0 ? CALL(cbt_chain_append(chain, map, &error))
                                      : CALL(cbt_chain_append_at(chain, map, time, &error));
  if (code != CBT_OK) return;
  CBT_FUZZ_CHECK(cbt_chain_count(chain) == before + 1);
  CBT_FUZZ_CHECK(std::strcmp(Newest(chain), cbt_map_name_borrowed(map, CBT_NAME_TARGET)) == 0);
  int32_t known = 0;
  int64_t found = 0;
  CBT_FUZZ_CHECK(CALL(cbt_chain_snapshot_time(chain, before, &known, &found, &error)) == CBT_OK);
  CBT_FUZZ_CHECK(known == time % 2 && found == (known != 0 ? time : 0));
}

inline void OfChains(World& world) {
  cbt_chain*& chain = world.chains.At(world.Byte());
  cbt_chain_options options = CBT_INIT(cbt_chain_options);
  options.no_sync = 1;
  switch (world.Byte() % 6) {
    case 0: {
      const std::string directory = world.Directory();
      const char* const first = world.Snapshot();
      const cbt_geometry geometry = {world.Number() % 65536, world.Number() % 300};
      cbt_chain_free(chain);
      CALL(cbt_chain_create(directory.c_str(), "volume", first, &geometry, &options, &chain,
                            &error));
      break;
    }
    case 1: {
      const std::string directory = world.Directory();
      cbt_chain_free(chain);
      CALL(cbt_chain_open(directory.c_str(), static_cast<int32_t>(world.Byte() % 3), &options,
                          &chain, &error));
      break;
    }
    case 2:
      ChangeChain(world, chain);
      break;
    case 3: {
      cbt_cursor*& to = world.cursors.At(world.Byte());
      const char* const base = world.Snapshot();
      const char* const target = world.Snapshot();
      cbt_cursor* made = nullptr;
      if (CALL(cbt_chain_delta(chain, base, target, &made, &error)) != CBT_OK) break;
      if (std::strcmp(base, target) == 0) {
        cbt_batch batch;
        CBT_FUZZ_CHECK(CALL(cbt_cursor_next(made, &batch, &error)) == CBT_OK);
        CBT_FUZZ_CHECK(batch.count == 0 && batch.complete != 0);
      }
      cbt_cursor_free(to);
      to = made;
      break;
    }
    case 4: {
      const char* id = nullptr;
      uint64_t capacity = 0;
      CALL(cbt_chain_snapshot_borrowed(chain, world.Number(), &id, &capacity, &error));
      // Nothing damages the files, but another handle may have changed them.
      CBT_FUZZ_CHECK(CALL(cbt_chain_verify(chain, &error)) != CBT_INTERNAL);
      break;
    }
    default:
      cbt_chain_free(chain);
  }
}

}  // namespace cbt::fuzz

#endif  // CBT_FUZZ_C_CHAINS_H_
