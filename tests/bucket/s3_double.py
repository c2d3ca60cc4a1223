"""A strict store of S3's protocol for tests, in memory, with faults.

s3_double.py ACCESS_KEY SECRET_KEY TOKEN BUCKET [PAGE [HOST]]

Prints its port. Commands on standard input, each answered by a line:
  fault KIND METHOD COUNT [SKIP]   COUNT requests with METHOD (ANY: all) have this fault, after SKIP others
  most                      the most requests at a time since the last such command
  completed, open           uploads in parts: completed since, and now neither done nor given up
  credentials ACCESS SECRET others are refused from now on
  count                     requests since the last such command
  write DIRECTORY           writes all objects as files below it
Signatures are computed here from what came over the wire, with no code of the client's.
"""

import base64
import calendar
import hashlib
import hmac
import http.server
import os
import re
import sys
import threading
import time
import urllib.parse
from xml.sax.saxutils import escape

ACCESS, SECRET, TOKEN, BUCKET = sys.argv[1:5]
PAGE = int(sys.argv[5]) if len(sys.argv) > 5 else 1000
HOST = sys.argv[6] if len(sys.argv) > 6 else "127.0.0.1"
objects = {}
marks = {}  # the metadata of objects that were put in parts
uploads = {}  # their parts until they are complete
faults = []
lock = threading.Lock()
counts = {"now": 0, "most": 0, "count": 0}


def digest(key, text):
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


def take_fault(method):
    with lock:
        for fault in faults:
            if fault[1] in ("ANY", method) and fault[2] > 0:
                if fault[3] > 0:
                    fault[3] -= 1
                    continue
                fault[2] -= 1
                return fault[0]
    return None


class Refused(Exception):
    pass


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 60

    def log_message(self, *_):
        pass

    def send(self, code, body=b"", headers=(), cut=None):
        self.send_response(code)
        headers = dict(headers)
        if code != 204:
            headers.setdefault("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        if cut == "stall":
            self.wfile.write(body[:len(body) // 2])
            self.wfile.flush()
            time.sleep(4)
            self.close_connection = True
        elif cut == "cut":
            self.wfile.write(body[:len(body) // 2])
            self.close_connection = True
        else:
            self.wfile.write(body)

    def error(self, code, name, message="", headers=()):
        body = f"<?xml version='1.0'?><Error><Code>{name}</Code><Message>{escape(message)}</Message></Error>"
        self.send(code, body.encode(), headers)

    def check_signature(self, body):
        authorization = self.headers.get("Authorization", "")
        match = re.fullmatch(
            r"AWS4-HMAC-SHA256 Credential=([^/,]+)/(\d{8})/([^/]+)/s3/aws4_request,\s*"
            r"SignedHeaders=([a-z0-9;-]+),\s*Signature=([0-9a-f]{64})", authorization)
        if match is None:
            raise Refused("AuthorizationHeaderMalformed")
        access, day, region, names, signature = match.groups()
        if access != ACCESS:
            raise Refused("InvalidAccessKeyId")
        names = names.split(";")
        if names != sorted(names) or "host" not in names:
            raise Refused("AuthorizationHeaderMalformed")
        for name in self.headers:
            if name.lower().startswith("x-amz-") and name.lower() not in names:
                raise Refused("AccessDenied")
        date = self.headers.get("x-amz-date", "")
        then = calendar.timegm(time.strptime(date, "%Y%m%dT%H%M%SZ"))
        if abs(time.time() - then) > 900 or not date.startswith(day):
            raise Refused("RequestTimeTooSkewed")
        if TOKEN and self.headers.get("x-amz-security-token") != TOKEN:
            raise Refused("InvalidToken")
        path, _, query = self.path.partition("?")
        if urllib.parse.quote(urllib.parse.unquote(path), safe="/-._~") != path:
            raise Refused("InvalidURI")
        if query.split("&") != sorted(query.split("&")):
            raise Refused("InvalidURI")
        sha256 = self.headers.get("x-amz-content-sha256", "")
        canonical = "\n".join(
            [self.command, path, query]
            + [f"{name}:{' '.join(self.headers.get(name, '').split())}" for name in names]
            + ["", ";".join(names), sha256])
        scope = f"{day}/{region}/s3/aws4_request"
        text = "\n".join(["AWS4-HMAC-SHA256", date, scope,
                          hashlib.sha256(canonical.encode()).hexdigest()])
        key = ("AWS4" + SECRET).encode()
        for part in (day, region, "s3", "aws4_request"):
            key = digest(key, part)
        if digest(key, text).hex() != signature:
            raise Refused("SignatureDoesNotMatch")
        if hashlib.sha256(body).hexdigest() != sha256:
            raise Refused("XAmzContentSHA256Mismatch")
        md5 = self.headers.get("content-md5")
        if md5 is not None and base64.b64encode(hashlib.md5(body).digest()).decode() != md5:
            raise Refused("BadDigest")

    def handle_one(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        fault = take_fault(self.command)
        if fault == "hold":
            time.sleep(0.05)
        if fault == "slowdown":
            return self.error(503, "SlowDown", "Reduce your request rate.")
        if fault == "retryafter":
            return self.error(503, "SlowDown", "", {"Retry-After": "3000"})
        if fault == "internal":
            return self.error(500, "InternalError")
        if fault == "reset":
            self.close_connection = True
            return None
        if fault == "error200":
            return self.error(200, "InternalError", "We encountered an internal error.")
        if fault == "page":  # something else that answers everything
            return self.send(200, b"<html><body>Welcome</body></html>", {"Content-Type": "text/html"})
        if fault == "echo":
            return self.error(403, "AccessDenied", f"you are {TOKEN} with {SECRET}")
        if fault == "region":
            return self.error(301, "PermanentRedirect", "", {"x-amz-bucket-region": "eu-west-9"})
        try:
            self.check_signature(body)
        except Refused as refused:
            code = 400 if str(refused) in ("BadDigest", "XAmzContentSHA256Mismatch") else 403
            return self.error(code, str(refused), "The request was refused.")
        path, _, query = self.path.partition("?")
        parts = urllib.parse.unquote(path).split("/", 2)
        if self.headers.get("Host", "").startswith(BUCKET + "."):
            parts = ["", BUCKET, urllib.parse.unquote(path)[1:]]
        if len(parts) < 2 or parts[1] != BUCKET:
            return self.error(404, "NoSuchBucket", "The specified bucket does not exist")
        key = parts[2] if len(parts) > 2 else ""
        if not key:
            return self.list(dict(urllib.parse.parse_qsl(query, keep_blank_values=True)), fault)
        query = dict(urllib.parse.parse_qsl(query, keep_blank_values=True))
        if "uploads" in query or "uploadId" in query:
            return self.multipart(key, query, body, fault)
        if self.command == "PUT":
            with lock:
                marks.pop(key, None)
                objects[key] = body
            if fault == "lost":
                self.close_connection = True
                return None
            tag = hashlib.md5(b"other" if fault == "etag" else body).hexdigest()
            return self.send(200, headers={"ETag": f'"{tag}"'})
        if self.command == "DELETE":
            with lock:
                objects.pop(key, None)
            if fault == "lost":
                self.close_connection = True
                return None
            return self.send(204)
        if key not in objects:
            return self.error(404, "NoSuchKey", "The specified key does not exist.")
        return self.read(objects[key], fault, marks.get(key))

    def multipart(self, key, query, body, fault):
        if self.command == "POST" and "uploads" in query:
            with lock:
                name = f"upload/{len(uploads)}+&="
                uploads[name] = (key, {}, self.headers.get("x-amz-meta-cbt-upload"))
            if fault == "lost":
                self.close_connection = True
                return None
            return self.send(200, ("<InitiateMultipartUploadResult><UploadId>" + escape(name) +
                                   "</UploadId></InitiateMultipartUploadResult>").encode())
        with lock:
            _, parts, mark = uploads.get(query["uploadId"], ("", None, None))
        if parts is None:
            return self.error(404, "NoSuchUpload")
        if self.command == "PUT":
            with lock:
                parts[int(query["partNumber"])] = body
            if fault == "lost":
                self.close_connection = True
                return None
            return self.send(200, headers={
                "ETag": f'"{hashlib.md5(b"other" if fault == "etag" else body).hexdigest()}"'})
        with lock:
            uploads[query["uploadId"]] = (key, None, None)
        if self.command == "DELETE":
            return self.send(204)
        named = re.findall(r"<PartNumber>(\d+)</PartNumber><ETag>([^<]*)</ETag>", body.decode())
        tags = [f'"{hashlib.md5(parts[number]).hexdigest()}"' for number in sorted(parts)]
        if [(int(number), tag) for number, tag in named] != list(zip(sorted(parts), tags)):
            return self.error(400, "InvalidPart")
        if fault == "drop":  # not done, and never answered
            with lock:
                uploads[query["uploadId"]] = (key, parts, mark)
            self.close_connection = True
            return None
        with lock:
            objects[key] = b"".join(parts[number] for number in sorted(parts))
            marks[key] = mark
            counts["completed"] = counts.get("completed", 0) + 1
        if fault == "lost":
            self.close_connection = True
            return None
        answer = b"<?xml version='1.0'?>   <CompleteMultipartUploadResult><ETag>x-1</ETag></CompleteMultipartUploadResult>"
        return self.send(200, answer, cut="cut" if fault == "cut" else None)

    def read(self, data, fault, mark):
        headers = {"ETag": f'"{hashlib.md5(data).hexdigest()}"'}
        if mark is not None:
            headers = {"ETag": '"0123-2"', "x-amz-meta-cbt-upload": mark}
        cut = fault if fault in ("cut", "stall") else None
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if asked is None or fault == "norange":
            if fault == "damage":
                data = bytes([data[0] ^ 1]) + data[1:]
            return self.send(200, data, headers, cut)
        first, last = int(asked[1]), min(int(asked[2]), len(data) - 1)
        if first >= len(data):
            return self.error(416, "InvalidRange")
        if fault == "otherrange":
            first += 1
        if fault == "shortrange":
            last -= 1
        headers["Content-Range"] = f"bytes {first}-{last}/{len(data)}"
        return self.send(206, data[first:last + 1], headers, cut)

    def list(self, query, fault):
        if self.command != "GET" or query.get("list-type") != "2":
            return self.error(501, "NotImplemented")
        prefix, after = query.get("prefix", ""), query.get("continuation-token", "")
        keys = sorted(key for key in objects if key.startswith(prefix) and key > after)
        page = keys[:PAGE]
        encode = urllib.parse.quote_plus if query.get("encoding-type") == "url" else escape
        body = "<?xml version='1.0' encoding='UTF-8'?><ListBucketResult xmlns='http://s3.amazonaws.com/doc/2006-03-01/'>"
        if "encoding-type" in query:
            body += "<EncodingType>url</EncodingType>"
        truncated = len(keys) > len(page) or fault == "notoken"
        body += f"<IsTruncated>{str(truncated).lower()}</IsTruncated>"
        if truncated and fault != "notoken":
            body += f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>"
        for key in page:
            body += f"<Contents><Key>{encode(key)}</Key><Size>{len(objects[key])}</Size></Contents>"
        if fault != "halflist":
            body += "</ListBucketResult>"
        return self.send(200, body.encode(), cut=fault if fault in ("cut", "stall") else None)

    def counted(self):
        with lock:
            counts["now"] += 1
            counts["count"] += 1
            counts["most"] = max(counts["most"], counts["now"])
        try:
            self.handle_one()
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True
        finally:
            with lock:
                counts["now"] -= 1

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = counted


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


def main():
    server = Server((HOST, 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_address[1], flush=True)
    for line in sys.stdin:
        words = line.split()
        answer = "ok"
        with lock:
            if words[0] == "fault":
                faults[:] = [[words[1], words[2], *map(int, (*words[3:], 0)[:2])]]
            elif words[0] == "write":
                for key, body in objects.items():
                    path = os.path.join(words[1], key)
                    os.makedirs(os.path.dirname(path), exist_ok=True)
                    with open(path, "wb") as file:
                        file.write(body)
            elif words[0] == "credentials":
                globals().update(ACCESS=words[1], SECRET=words[2])
            else:
                counts["open"] = sum(parts is not None for _, parts, _ in uploads.values())
                answer = str(counts.get(words[0], 0))
                counts[words[0]] = 0
        print(answer, flush=True)


main()
