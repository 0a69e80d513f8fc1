"""jwt_check.py SOCKET SECRET_FILE - checks JSON Web Tokens for nginx's auth_request, see docs/gateways.md.

It answers 204 with the claim `sub` in X-User if a request has a token that is signed by the secret (HS256) and has not
expired, otherwise 401.
"""
import base64
import hashlib
import hmac
import http.server
import json
import pathlib
import socketserver
import sys
import time
import urllib.parse

SECRET = open(sys.argv[2], "rb").read().strip()


def decode(part):
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


def user_of(authorization):
    scheme, token = authorization.split()
    head, claims, signature = token.split(".")
    expected = hmac.new(SECRET, f"{head}.{claims}".encode(), hashlib.sha256).digest()
    if not hmac.compare_digest(expected, decode(signature)):  # before anything in the token is read
        raise ValueError("another signature")
    if scheme.lower() != "bearer" or json.loads(decode(head))["alg"] != "HS256":
        raise ValueError("another kind of token")
    claims = json.loads(decode(claims))
    if claims["exp"] <= time.time():
        raise ValueError("expired")
    return urllib.parse.quote(claims["sub"])


class Check(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        try:
            user = user_of(self.headers["Authorization"])
            self.send_response(204)
            self.send_header("X-User", user)
        except (AttributeError, KeyError, TypeError, ValueError):
            self.send_response(401)
        self.end_headers()

    def log_message(self, *_):
        pass


class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    pass


pathlib.Path(sys.argv[1]).unlink(missing_ok=True)  # a process that died has left it behind
Server(sys.argv[1], Check).serve_forever()
