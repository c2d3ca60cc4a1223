// A CSI plugin in Go whose snapshots are image files in a folder: csi.v1.SnapshotMetadata comes from
// libcbt, Identity from the plugin, both from one grpc.Server.
//
//	plugin -root /var/lib/images -listen /run/csi/csi.sock
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"cbt.example.com/cbt"
	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// [provider]
// images is a folder that has the snapshot VOLUME/NAME as VOLUME/NAME.img.
type images struct {
	root   string
	blocks uint64 // report blocks of this size instead of extents, 0: extents
}

// Open opens the source of one stream.
func (i *images) Open(_ context.Context, request *cbt.Request) (*cbt.Answer, error) {
	target, version, err := i.find(request.Target)
	if err != nil {
		return nil, err
	}
	options := cbt.SourceOptions{Format: "image", Purpose: cbt.Allocated}
	if request.Base != "" {
		base, before, err := i.find(request.Base)
		if err != nil {
			return nil, err
		}
		if filepath.Dir(base) != filepath.Dir(target) {
			return nil, cbt.Errorf(codes.InvalidArgument, "the snapshots are of two volumes")
		}
		options.Base, options.Purpose = base, cbt.Delta
		version += " since " + before
	}
	cursor, err := cbt.OpenSource(target, options)
	if err != nil {
		return nil, err
	}
	return &cbt.Answer{Cursor: cursor, BlockSize: i.blocks, Version: version}, nil
}

// [/provider]

// find is the path of a snapshot, and a text that changes with its content.
func (i *images) find(snapshot string) (path, version string, err error) {
	volume, name, _ := strings.Cut(snapshot, "/")
	if volume == "" || name == "" || !filepath.IsLocal(snapshot) || strings.Count(snapshot, "/") != 1 {
		return "", "", cbt.Errorf(codes.NotFound, "there is no snapshot %q", snapshot)
	}
	path = filepath.Join(i.root, volume, name+".img")
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", "", cbt.Errorf(codes.NotFound, "there is no snapshot %q", snapshot)
	}
	if err != nil {
		return "", "", cbt.Errorf(codes.Unavailable, "snapshot %q can't be read", snapshot)
	}
	return path, fmt.Sprint(info.Size(), info.ModTime().UnixNano()), nil
}

// [identity]
// identity is the plugin's own: it lists SNAPSHOT_METADATA_SERVICE.
type identity struct {
	csi.UnimplementedIdentityServer
}

func (identity) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: "images.example.com", VendorVersion: "1.0"}, nil
}

func (identity) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	service := &csi.PluginCapability_Service{Type: csi.PluginCapability_Service_SNAPSHOT_METADATA_SERVICE}
	return &csi.GetPluginCapabilitiesResponse{Capabilities: []*csi.PluginCapability{
		{Type: &csi.PluginCapability_Service_{Service: service}}}}, nil
}

func (identity) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{Ready: wrapperspb.Bool(true)}, nil
}

// [/identity]

func main() {
	root := flag.String("root", "", "folder of the images")
	listen := flag.String("listen", "", "path of the socket")
	blocks := flag.Uint64("blocks", 0, "report blocks of so many bytes; 0: extents")
	flag.Parse()
	if err := run(*root, *listen, *blocks); err != nil {
		log.Fatal(err)
	}
}

// [serve]
func run(root, listen string, blocks uint64) error {
	server := grpc.NewServer()
	csi.RegisterIdentityServer(server, identity{})
	err := cbt.RegisterSnapshotMetadata(server, &images{root, blocks}, cbt.ServiceOptions{})
	if err != nil {
		return err
	}
	listener, err := net.Listen("unix", listen)
	if err != nil {
		return err
	}
	ended, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ended, server.GracefulStop)
	return server.Serve(listener)
}

// [/serve]
