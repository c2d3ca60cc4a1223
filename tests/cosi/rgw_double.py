"""An object gateway for tests, in memory: S3, policies that are enforced, and the admin API, with faults.

A test makes Gateway() and reads and changes its state; what it answers was compared with radosgw 16.2,
since tests/cosi/driver_test.py runs against both.
"""

import fnmatch
import hashlib
import http.server
import json
import re
import secrets
import sys
import threading
import time
import urllib.parse
from xml.sax.saxutils import escape

import s3

ADMIN = ("AKADMIN", "secret/of+the=admin")


class Failure(Exception):
    def __init__(self, code, name):
        super().__init__(name)
        self.code, self.name = code, name


class Bucket:
    def __init__(self, owner):
        self.owner, self.objects, self.tags, self.policy, self.versioning = owner, {}, None, None, False
        self.writers = {}  # who wrote an object owns it


class Gateway:
    def __init__(self, address="127.0.0.1"):
        self.lock = threading.RLock()
        self.buckets = {}
        self.users = {"admin": self.user("admin", "admin", caps=[{"type": "users", "perm": "*"}])}
        self.users["admin"]["keys"] = [{"user": "admin", "access_key": ADMIN[0], "secret_key": ADMIN[1]}]
        self.fault = None  # fault(method, path, query): an answer (code, body), "reset", a time, or None
        self.log = []  # (method, path, query) of every request
        gateway = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1  # one packet for each answer
            disable_nagle_algorithm = True

            def log_message(self, *_):
                pass

            def handle_one(self):
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                gateway.serve(self, body)

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_one

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 256

        self.server = Server((address, 0), Handler)
        self.endpoint = f"http://{address}:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    @staticmethod
    def user(uid, name, caps=(), max_buckets=1000):
        return {"tenant": "", "user_id": uid, "display_name": name, "suspended": 0, "max_buckets": max_buckets,
                "subusers": [], "keys": [], "caps": list(caps), "op_mask": "read, write, delete"}

    def new_key(self, uid):
        key = {"user": uid, "access_key": secrets.token_hex(10).upper(), "secret_key": secrets.token_hex(20)}
        self.users[uid]["keys"].append(key)
        return key

    def key(self, access):
        for uid, user in self.users.items():
            for key in user["keys"]:
                if key["access_key"] == access:
                    return uid, key["secret_key"]
        return None, None

    # --- Policies.

    def allows(self, uid, action, name, key=None):
        bucket = self.buckets[name]
        resource = f"arn:aws:s3:::{name}" + (f"/{key}" if key is not None else "")
        decisions = set()
        for statement in (json.loads(bucket.policy)["Statement"] if bucket.policy else []):
            principals = statement["Principal"]["AWS"]
            if f"arn:aws:iam:::user/{uid}" not in principals:
                continue
            actions = statement["Action"] if isinstance(statement["Action"], list) else [statement["Action"]]
            if any(fnmatch.fnmatchcase(action, each) for each in actions) and any(
                    fnmatch.fnmatchcase(resource, each) for each in statement["Resource"]):
                decisions.add(statement["Effect"])
        if "Deny" in decisions:
            return False
        if key is not None and action == "s3:GetObject" and key in bucket.objects:
            return bucket.writers[key] == uid or "Allow" in decisions
        return bucket.owner == uid or "Allow" in decisions

    # --- Requests.

    def serve(self, handler, body):
        path, _, text = handler.path.partition("?")
        query = dict(urllib.parse.parse_qsl(text, keep_blank_values=True))
        path = urllib.parse.unquote(path)
        with self.lock:
            self.log.append((handler.command, path, query))
        fault = self.fault(handler.command, path, query) if self.fault else None
        if isinstance(fault, float):
            time.sleep(fault)
        if fault == "reset":
            handler.close_connection = True
            return
        if isinstance(fault, tuple):
            return self.send(handler, *fault)
        admin = path.startswith("/admin/")
        try:
            with self.lock:
                access = s3.check_signature(handler, body, lambda access: self.key(access)[1])
                if access is None:
                    raise Failure(403, "SignatureDoesNotMatch")
                uid = self.key(access)[0]
                answer = (self.admin if admin else self.s3)(handler.command, path, query, body, uid)
        except Failure as failure:
            answer = failure.code, (json.dumps({"Code": failure.name, "RequestId": "tx1"}) if admin else
                                    f"<?xml version='1.0'?><Error><Code>{failure.name}</Code></Error>")
        if fault == "lost":
            handler.close_connection = True
            return
        self.send(handler, *answer)

    @staticmethod
    def send(handler, code, body=b"", tag=None):
        body = body.encode() if isinstance(body, str) else body
        handler.send_response(code)
        if code != 204:
            handler.send_header("Content-Length", str(len(body)))
        if tag:
            handler.send_header("ETag", f'"{tag}"')
        handler.end_headers()
        if handler.command != "HEAD":
            handler.wfile.write(body)

    def admin(self, method, path, query, _body, uid):
        if not self.users[uid]["caps"]:
            raise Failure(403, "AccessDenied")
        if path == "/admin/bucket" and method == "DELETE":
            if query["bucket"] not in self.buckets:
                raise Failure(404, "NoSuchBucket")
            if self.buckets[query["bucket"]].objects and query.get("purge-objects") not in ("true", "True"):
                raise Failure(409, "BucketNotEmpty")
            del self.buckets[query["bucket"]]
            return 200, ""
        if path != "/admin/user":
            raise Failure(405, "MethodNotAllowed")
        name = query.get("uid", "")
        user = self.users.get(name)
        if method == "PUT" and "key" not in query:
            if user is not None:
                raise Failure(409, "UserAlreadyExists")
            self.users[name] = self.user(name, query["display-name"], max_buckets=int(query.get("max-buckets", 1000)))
            if query.get("generate-key", "true").lower() == "true":
                self.new_key(name)
            return 200, json.dumps(self.users[name])
        if user is None:
            raise Failure(404, "NoSuchUser")
        if method == "PUT":
            self.new_key(name)
            return 200, json.dumps(user["keys"])
        if method == "POST":
            user["display_name"] = query.get("display-name", user["display_name"])
            return 200, json.dumps(user)
        if method == "DELETE":
            if any(bucket.owner == name for bucket in self.buckets.values()):
                raise Failure(409, "UserBucketsExist")
            del self.users[name]
            return 200, ""
        return 200, json.dumps(user)

    def s3(self, method, path, query, body, uid):
        _, name, *rest = path.split("/", 2)
        key = rest[0] if rest and rest[0] else None
        if key is None and method == "PUT" and not query:
            return self.create(name, uid)
        if name not in self.buckets:
            raise Failure(404, "NoSuchBucket")
        if key is not None:
            return self.object(method, name, key, body, uid)
        bucket = self.buckets[name]
        if "policy" in query:
            return self.policy(method, name, body, uid)
        if "tagging" in query:
            return self.tagging(method, name, body, uid)
        if "versioning" in query:
            if bucket.owner != uid:
                raise Failure(403, "AccessDenied")
            bucket.versioning = b"Enabled" in body
            return 200, ""
        if method == "DELETE":
            if not self.allows(uid, "s3:DeleteBucket", name):
                raise Failure(403, "AccessDenied")
            if bucket.objects:
                raise Failure(409, "BucketNotEmpty")
            del self.buckets[name]
            return 204, ""
        if not self.allows(uid, "s3:ListBucketVersions" if "versions" in query else "s3:ListBucket", name):
            raise Failure(403, "AccessDenied")
        if method == "HEAD":
            return 200, ""
        root, entry = ("ListVersionsResult", "Version") if "versions" in query else ("ListBucketResult", "Contents")
        entries = "".join(f"<{entry}><Key>{escape(each)}</Key><Size>{len(data)}</Size></{entry}>"
                          for each, data in sorted(bucket.objects.items()))
        return 200, (f"<?xml version='1.0'?><{root} xmlns='http://s3.amazonaws.com/doc/2006-03-01/'>"
                     f"<IsTruncated>false</IsTruncated>{entries}</{root}>")

    def create(self, name, uid):
        if not re.fullmatch("[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]", name):
            raise Failure(400, "InvalidBucketName")
        if self.users[uid]["max_buckets"] < 0:
            raise Failure(400, "TooManyBuckets")
        if name in self.buckets and self.buckets[name].owner != uid:
            raise Failure(409, "BucketAlreadyExists")
        self.buckets.setdefault(name, Bucket(uid))
        return 200, ""

    def object(self, method, name, key, body, uid):
        action = {"PUT": "s3:PutObject", "GET": "s3:GetObject", "HEAD": "s3:GetObject",
                  "DELETE": "s3:DeleteObject"}[method]
        if not self.allows(uid, action, name, key):
            raise Failure(403, "AccessDenied")
        objects = self.buckets[name].objects
        if method == "PUT":
            objects[key] = body
            self.buckets[name].writers[key] = uid
            return 200, "", hashlib.md5(body).hexdigest()
        if method == "DELETE":
            objects.pop(key, None)
            return 204, ""
        if key not in objects:
            raise Failure(404, "NoSuchKey")
        return 200, objects[key], hashlib.md5(objects[key]).hexdigest()

    def policy(self, method, name, body, uid):
        bucket = self.buckets[name]
        action = {"PUT": "s3:PutBucketPolicy", "GET": "s3:GetBucketPolicy", "DELETE": "s3:DeleteBucketPolicy"}[method]
        if not self.allows(uid, action, name):
            raise Failure(403, "AccessDenied")
        if method == "PUT":
            try:
                for statement in json.loads(body)["Statement"]:
                    assert set(statement) <= {"Sid", "Effect", "Principal", "Action", "Resource", "Condition"}
            except (ValueError, KeyError, AssertionError):
                raise Failure(400, "MalformedPolicy") from None
            bucket.policy = body
            return 200, ""
        if method == "DELETE":
            bucket.policy = None
            return 204, ""
        if bucket.policy is None:
            raise Failure(404, "NoSuchBucketPolicy")
        return 200, bucket.policy

    def tagging(self, method, name, body, uid):
        bucket = self.buckets[name]
        if bucket.owner != uid:
            raise Failure(403, "AccessDenied")
        if method == "PUT":
            bucket.tags = body
            return 204, ""
        if bucket.tags is None:
            raise Failure(404, "NoSuchTagSetError")
        return 200, bucket.tags


def main():
    """Serves at the address of the command line until its input ends, as tests/bucket/radosgw.sh does."""
    gateway = Gateway(sys.argv[1])
    print(gateway.endpoint, "none", *ADMIN, flush=True)
    sys.stdin.read()
    gateway.close()


if __name__ == "__main__":
    main()
