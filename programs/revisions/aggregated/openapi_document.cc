#include "programs/revisions/aggregated/openapi_document.h"

#include <string>

namespace cbt::kube::aggregated {
namespace {

// Aggregators and kubectl keep a document under its URL, so a change of it takes another hash.
constexpr char kDocuments[] =
    R"({"paths":{"apis/cbt.storage.k8s.io/v1alpha1":{"serverRelativeURL":)"
    R"("/openapi/v3/apis/cbt.storage.k8s.io/v1alpha1?hash=1"}}})"
    "\n";

// kubectl looks at PATCH of a resource for how its fields are validated. Without one it lists all
// CustomResourceDefinitions, and refuses to create the object for users who may not do that.
constexpr char kVersionDocument[] = R"json({
"openapi": "3.0.0",
"info": {"title": "cbt.storage.k8s.io", "version": "v1alpha1"},
"paths": {
 "/apis/cbt.storage.k8s.io/v1alpha1/namespaces/{namespace}/volumesnapshotdeltas": {
  "post": {
   "operationId": "createCbtStorageV1alpha1NamespacedVolumeSnapshotDelta",
   "description": "Answers with the object, and a page of changed blocks in its status.",
   "x-kubernetes-action": "post",
   "x-kubernetes-group-version-kind":
    {"group": "cbt.storage.k8s.io", "version": "v1alpha1", "kind": "VolumeSnapshotDelta"},
   "requestBody": {"required": true, "content": {"application/json": {"schema":
    {"$ref": "#/components/schemas/io.k8s.storage.cbt.v1alpha1.VolumeSnapshotDelta"}}}},
   "responses": {"201": {"description": "Created", "content": {"application/json": {"schema":
    {"$ref": "#/components/schemas/io.k8s.storage.cbt.v1alpha1.VolumeSnapshotDelta"}}}}}
  },
  "parameters": [
   {"name": "namespace", "in": "path", "required": true, "schema": {"type": "string"},
    "description": "The namespace of the VolumeSnapshots."},
   {"name": "fieldValidation", "in": "query", "schema": {"type": "string"},
    "description": "Unknown fields are always refused."}
  ]
 },
 "/apis/cbt.storage.k8s.io/v1alpha1/namespaces/{namespace}/volumesnapshotdeltas/{name}": {
  "patch": {
   "operationId": "patchCbtStorageV1alpha1NamespacedVolumeSnapshotDelta",
   "description": "Is not allowed: nothing is stored.",
   "x-kubernetes-action": "patch",
   "x-kubernetes-group-version-kind":
    {"group": "cbt.storage.k8s.io", "version": "v1alpha1", "kind": "VolumeSnapshotDelta"},
   "parameters": [
    {"name": "fieldValidation", "in": "query", "schema": {"type": "string"},
     "description": "Unknown fields are always refused."}
   ],
   "responses": {"405": {"description": "Method Not Allowed"}}
  },
  "parameters": [
   {"name": "namespace", "in": "path", "required": true, "schema": {"type": "string"}},
   {"name": "name", "in": "path", "required": true, "schema": {"type": "string"}}
  ]
 }
},
"components": {"schemas": {
 "io.k8s.storage.cbt.v1alpha1.VolumeSnapshotDelta": {
  "type": "object",
  "description": "Asks for a page of the blocks that changed between two VolumeSnapshots of its namespace. It is answered when it is created, and not stored.",
  "required": ["spec"],
  "x-kubernetes-group-version-kind":
   [{"group": "cbt.storage.k8s.io", "version": "v1alpha1", "kind": "VolumeSnapshotDelta"}],
  "properties": {
   "apiVersion": {"type": "string", "description": "cbt.storage.k8s.io/v1alpha1"},
   "kind": {"type": "string", "description": "VolumeSnapshotDelta"},
   "metadata": {"type": "object", "description": "Any name. The next page is asked for with the annotations of the last one."},
   "spec": {"$ref": "#/components/schemas/io.k8s.storage.cbt.v1alpha1.VolumeSnapshotDeltaSpec"},
   "status": {"$ref": "#/components/schemas/io.k8s.storage.cbt.v1alpha1.VolumeSnapshotDeltaStatus"}
  }
 },
 "io.k8s.storage.cbt.v1alpha1.VolumeSnapshotDeltaSpec": {
  "type": "object",
  "description": "The question.",
  "required": ["targetVolumeSnapshotName"],
  "properties": {
   "baseVolumeSnapshotName": {"type": "string", "description": "A snapshot of the same volume that is not newer. Without it, all that is allocated in the target."},
   "targetVolumeSnapshotName": {"type": "string", "description": "A VolumeSnapshot of the object's namespace."},
   "mode": {"type": "string", "enum": ["", "block"], "description": "block, which it is without a value too."},
   "limit": {"type": "integer", "format": "int64", "minimum": 0, "maximum": 16384, "description": "How many blocks the page has at most. 0: the server's own limit."},
   "offset": {"type": "integer", "format": "int64", "minimum": 0, "description": "The index of the first block, in blocks of the driver's DriverDiscovery."},
   "volumeSnapshotDeltaSecretRef": {
    "type": "object",
    "description": "A Secret for the storage, in place of the one that the class names. The caller must have the right to get it.",
    "required": ["name"],
    "properties": {
     "name": {"type": "string", "description": "The Secret's name."},
     "namespace": {"type": "string", "description": "The object's namespace, or nothing."}
    }
   }
  }
 },
 "io.k8s.storage.cbt.v1alpha1.VolumeSnapshotDeltaStatus": {
  "type": "object",
  "description": "The page.",
  "properties": {
   "state": {"type": "integer", "format": "int32", "enum": [0, 1, 2], "description": "0 Completed; 1 Continue: ask again with offset = continue; 2 Failed: error says why, and there are no blocks."},
   "error": {"type": "string", "description": "Why it is Failed."},
   "limit": {"type": "integer", "format": "int64", "description": "The limit of this page."},
   "offset": {"type": "integer", "format": "int64", "description": "The index that this page begins at."},
   "continue": {"type": "integer", "format": "int64", "description": "The index that the next page begins at."},
   "changedBlockDeltas": {
    "type": "array",
    "description": "Blocks of which a byte may have changed, in ascending order.",
    "items": {
     "type": "object",
     "properties": {
      "offset": {"type": "integer", "format": "int64", "description": "The block's index."},
      "blockSizeBytes": {"type": "integer", "format": "int64", "description": "The block's size."},
      "dataToken": {
       "type": "object",
       "description": "What the driver reads the block's data by, where it has that.",
       "properties": {
        "token": {"type": "string"},
        "issuanceTime": {"type": "string"},
        "ttlSeconds": {"type": "integer", "format": "int64"}
       }
      }
     }
    }
   }
  }
 }
}}
}
)json";

}  // namespace

std::optional<http_server::Response> OpenApiDocument(std::string_view path) {
  if (path == kOpenApiPath) return http_server::Response{.body = std::string(kDocuments)};
  if (path == kOpenApiVersionPath) {
    return http_server::Response{.body = std::string(kVersionDocument)};
  }
  return std::nullopt;
}

}  // namespace cbt::kube::aggregated
