"""S3 and the admin API by hand, for tests: signatures of version 4, with no code of the project."""

import calendar
import hashlib
import hmac
import http.client
import time
import urllib.parse


def digest(key, text):
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


def signature(secret, method, path, query, headers, names, sha256, date, region):
    canonical = "\n".join([method, path, query] + [f"{name}:{' '.join(headers[name].split())}" for name in names] +
                          ["", ";".join(names), sha256])
    scope = f"{date[:8]}/{region}/s3/aws4_request"
    text = "\n".join(["AWS4-HMAC-SHA256", date, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    key = ("AWS4" + secret).encode()
    for part in (date[:8], region, "s3", "aws4_request"):
        key = digest(key, part)
    return digest(key, text).hex()


class S3:
    """Requests with one pair of keys; each returns (status, body)."""

    def __init__(self, endpoint, access, secret):
        self.host = endpoint.removeprefix("http://").rstrip("/")
        self.access, self.secret = access, secret

    def request(self, method, path, query=None, body=b""):
        path = urllib.parse.quote(path, safe="/-._~")
        pairs = sorted((urllib.parse.quote(k, safe="-._~"), urllib.parse.quote(v, safe="-._~"))
                       for k, v in (query or {}).items())
        text = "&".join(f"{k}={v}" for k, v in pairs)
        date = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        sha256 = hashlib.sha256(body).hexdigest()
        headers = {"host": self.host, "x-amz-content-sha256": sha256, "x-amz-date": date}
        names = sorted(headers)
        signed = signature(self.secret, method, path, text, headers, names, sha256, date, "us-east-1")
        headers["authorization"] = (f"AWS4-HMAC-SHA256 Credential={self.access}/{date[:8]}/us-east-1/s3/aws4_request,"
                                    f"SignedHeaders={';'.join(names)},Signature={signed}")
        connection = http.client.HTTPConnection(self.host, timeout=30)
        try:
            connection.request(method, path + ("?" + text if text else ""), body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def put(self, bucket, key, body=b"data"):
        return self.request("PUT", f"/{bucket}/{key}", body=body)[0]

    def get(self, bucket, key):
        return self.request("GET", f"/{bucket}/{key}")[0]

    def delete(self, bucket, key):
        return self.request("DELETE", f"/{bucket}/{key}")[0]

    def list(self, bucket):
        return self.request("GET", f"/{bucket}", {"list-type": "2"})[0]


def check_signature(handler, body, secret_of):
    """The access key of a request to a server of tests, or None. `secret_of(access)`: its secret."""
    header = handler.headers.get("Authorization", "")
    if not header.startswith("AWS4-HMAC-SHA256 "):
        return None
    fields = dict(part.strip().split("=", 1) for part in header.split(" ", 1)[1].split(","))
    access, day, region, service, _ = fields["Credential"].split("/")
    date = handler.headers["x-amz-date"]
    secret = secret_of(access)
    age = abs(time.time() - calendar.timegm(time.strptime(date, "%Y%m%dT%H%M%SZ")))
    path, _, query = handler.path.partition("?")
    sha256 = handler.headers.get("x-amz-content-sha256", "")
    if secret is None or service != "s3" or day != date[:8] or age > 900:
        return None
    if hashlib.sha256(body).hexdigest() != sha256 or query.split("&") != sorted(query.split("&")):
        return None
    names = fields["SignedHeaders"].split(";")
    headers = {name: handler.headers.get(name, "") for name in names}
    expected = signature(secret, handler.command, path, query, headers, names, sha256, date, region)
    return access if hmac.compare_digest(expected, fields["Signature"]) else None
