// Where the parts of a driver's volumes are.
#ifndef CBT_PROGRAMS_DRIVER_STATE_VOLUME_PATHS_H_
#define CBT_PROGRAMS_DRIVER_STATE_VOLUME_PATHS_H_

#include <string>
#include <string_view>
#include <utility>

namespace cbt::driver {

// Paths below STATE/volumes/ID, see state/catalog.h. Ids are checked before they come here.
class VolumePaths {
 public:
  explicit VolumePaths(std::string state) : state_(std::move(state)) {}

  std::string Directory(std::string_view id) const {
    return state_ + "/volumes/" + std::string(id);
  }
  std::string Volume(std::string_view id) const { return Directory(id) + "/volume"; }
  std::string ControlSocket(std::string_view id) const { return Directory(id) + "/control.sock"; }
  std::string NbdSocket(std::string_view id) const { return Directory(id) + "/nbd.sock"; }
  std::string PidFile(std::string_view id) const { return Directory(id) + "/nbdkit.pid"; }
  std::string FuseDirectory(std::string_view id) const { return Directory(id) + "/fuse"; }
  std::string FuseFile(std::string_view id) const { return FuseDirectory(id) + "/disk"; }
  // Of a view: another name of the snapshot's file. It has the volume's id, so that the loop
  // devices of two views of one snapshot differ.
  std::string ViewFile(std::string_view id) const {
    return Directory(id) + "/" + std::string(id) + ".view";
  }
  std::string HostSocket() const { return state_ + "/host.sock"; }

 private:
  std::string state_;
};

}  // namespace cbt::driver

#endif  // CBT_PROGRAMS_DRIVER_STATE_VOLUME_PATHS_H_
