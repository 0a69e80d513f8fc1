#!/usr/bin/env python3
"""producers.py WEIR - writes logs as about 90 producers write them, and lets weir replay read each one.

Prints three numbers: formats that weir detects rightly, that it refuses, and that it reads wrongly. Rightly means that it
finds every request, client and time without an option. Wrong is anything else that ends with status 0; none may be.
"""
import json
import subprocess
import sys

WEIR = sys.argv[1]
CLIENTS = ["192.0.2.7", "198.51.100.9", "203.0.113.8", "192.0.2.77", "198.51.100.21"]
FIRST = 1794290400  # 2026-11-10T06:00:00Z
COUNT = 30


class At:
    """One request: its number, client and time in the ways that producers write it."""

    def __init__(self, i):
        self.i, self.client, self.s = i, CLIENTS[i % 5], FIRST + i
        self.ms, self.us = self.s * 1000, self.s * 1000000
        self.clock = "06:00:%02d" % i
        self.iso = "2026-11-10T%sZ" % self.clock
        self.zone = "2026-11-10T%s+00:00" % self.clock
        self.space = "2026-11-10 %s" % self.clock
        self.slash = "2026/11/10 %s" % self.clock
        self.clf = "10/Nov/2026:%s +0000" % self.clock
        self.stamp = "Nov 10 %s" % self.clock
        self.path = "/p/%d" % i
        self.port = 40000 + i


def obj(**members):
    return json.dumps(members, separators=(",", ":"))


COMMON = '{0.client} - - [{0.clf}] "GET {0.path} HTTP/1.1" 200 512'
COMBINED = COMMON + ' "-" "Mozilla/5.0 (X11; Linux x86_64)"'
ALB = ('https {0.iso} app/lb/50dc6c495c0c9188 {0.client}:{0.port} 10.0.0.1:80 0.086 0.048 0.037 200 200 0 57 '
       '"GET https://www.example.com:443{0.path} HTTP/1.1" "curl/7.46.0" ECDHE TLSv1.2 arn:aws:x "Root=1" "www" "-" 1 -')
HTTPLOG = ('{0.client}:{0.port} [10/Nov/2026:{0.clock}.250] in~ static/srv1 10/0/30/69/109 200 2750 - - ---- 1/1/1/1/0 '
           '0/0 "GET {0.path} HTTP/1.1"')

# name: a text with the fields of At, a function of At, or either of them behind a first line.
FORMATS = {
    "apache common": COMMON,
    "apache combined": COMBINED,
    "apache vhost_combined": "www.example.com:443 " + COMBINED,
    "nginx with request time": COMBINED + " 0.005",
    "nginx ingress": COMBINED + ' 412 0.004 [default-web-80] [] 10.0.0.7:8080 512 0.004 200 1f2e3d',
    "gunicorn": COMBINED,
    "tomcat": COMMON,
    "traefik clf": COMMON + ' "-" "-" {0.i} "web@docker" "http://10.0.0.7:80" 2ms',
    "werkzeug": '{0.client} - - [10/Nov/2026 {0.clock}] "GET {0.path} HTTP/1.1" 200 -',
    "lighttpd": '{0.client} www.example.com - [{0.clf}] "GET {0.path} HTTP/1.1" 200 512 "-" "curl/8"',
    "client with a port": '{0.client}:{0.port} - - [{0.clf}] "GET {0.path} HTTP/1.1" 200 512',
    "forwarded chain": '{0.client}, 10.0.0.1 - - [{0.clf}] "GET {0.path} HTTP/1.1" 200 512 "-" "curl/8"',
    "mapped addresses": "::ffff:" + COMMON,
    "host dash client": "www.example.com - {0.client} [{0.clf}] \"GET {0.path} HTTP/1.1\" 200 512 \"-\" \"curl/8\"",
    "nginx behind syslog": "{0.stamp} web nginx: " + COMBINED,
    "nginx behind rsyslog": "{0.zone} web nginx: " + COMBINED,
    "nginx behind rfc5424": "<190>1 {0.zone} web nginx - - [origin ip=\"10.0.0.1\"] " + COMBINED,
    "docker compose": "web_1  | " + COMBINED,
    "containerd": "{0.iso} stdout F " + COMBINED,
    "docker json-file": lambda r: obj(log=COMBINED.format(r) + "\n", stream="stdout", time=r.iso),
    "haproxy httplog": HTTPLOG,
    "haproxy behind syslog": "{0.stamp} lb haproxy[7]: " + HTTPLOG,
    "haproxy tcplog": "{0.stamp} lb haproxy[7]: {0.client}:{0.port} [10/Nov/2026:{0.clock}.250] in db/db1 1/0/4 516 -- "
                      "3/3/0/0/0 0/0",
    "aws alb": ALB,
    "aws elb": '{0.iso} my-lb {0.client}:{0.port} 10.0.0.1:80 0.000073 0.001048 0.000057 200 200 0 29 '
               '"GET http://www.example.com:80{0.path} HTTP/1.1" "curl/7.38.0" - -',
    "aws elb tcp": '{0.iso} my-lb {0.client}:{0.port} 10.0.0.1:80 0.001069 0.000028 0.000041 - - 82 305 "- - - " "-" - -',
    "aws nlb": "tls 2.0 2026-11-10T{0.clock} net/my-lb/c6e77e28c25b2234 g3d4b5e8bb8464cd {0.client}:{0.port} "
               "10.0.0.1:443 5 2 98 246 - arn:aws:acm - ECDHE tlsv12 - www.example.com - - -",
    "aws s3": '79a59df900b949e55d96a1e698fbaced my-bucket [{0.clf}] {0.client} 79a59df900 3E57427F3EXAMPLE '
              'REST.GET.OBJECT {0.path} "GET {0.path} HTTP/1.1" 200 - 113 - 7 - "-" "S3Console/0.4" -',
    "aws cloudfront": ["#Version: 1.0\n#Fields: date time x-edge-location sc-bytes c-ip cs-method cs(Host) cs-uri-stem",
                       "2026-11-10\t{0.clock}\tFRA1\t512\t{0.client}\tGET\td1.cloudfront.net\t{0.path}"],
    "iis": ["#Software: Microsoft Internet Information Services 10.0\n#Fields: date time s-ip cs-method cs-uri-stem "
            "cs-uri-query s-port cs-username c-ip cs(User-Agent) sc-status time-taken",
            "2026-11-10 {0.clock} 10.0.0.1 GET {0.path} - 443 - {0.client} curl/8 200 15"],
    "zeek tsv": ["#separator \\x09\n#fields\tts\tuid\tid.orig_h\tid.orig_p\tid.resp_h\tmethod",
                 "{0.s}.250000\tCuid\t{0.client}\t{0.port}\t10.0.0.1\tGET"],
    "aws waf": lambda r: obj(timestamp=r.ms, formatVersion=1, action="ALLOW", httpSourceName="ALB", httpRequest={
        "clientIp": r.client, "country": "DE", "headers": [{"name": "Host", "value": "www"}], "uri": r.path,
        "httpMethod": "GET"}),
    "aws api gateway": lambda r: obj(requestId="x", ip=r.client, requestTime=r.clf, httpMethod="GET",
                                     resourcePath=r.path, status="200", responseLength="512"),
    "aws api gateway epoch": lambda r: obj(requestId="x", sourceIp=r.client, requestTimeEpoch=r.ms, status=200),
    "aws cloudtrail": lambda r: obj(eventVersion="1.08", eventTime=r.iso, sourceIPAddress=r.client, eventName="Get"),
    "aws vpc flow": lambda r: "2 123456789010 eni-1235b8ca %s 10.0.0.1 %d 22 6 20 4249 %d %d ACCEPT OK"
                              % (r.client, r.port, r.s, r.s + 60),
    "azure front door": lambda r: obj(time=r.iso, category="FrontDoorAccessLog", properties={
        "requestUri": r.path, "clientIp": r.client, "clientPort": str(r.port), "socketIp": "10.0.0.9", "timeTaken":
        "0.012"}),
    "azure application gateway": lambda r: obj(time=r.iso, properties={"clientIP": r.client, "httpMethod": "GET"}),
    "azure activity": lambda r: obj(time=r.iso, callerIpAddress="%s:%d" % (r.client, r.port), operationName="x"),
    "gcp load balancer": lambda r: obj(httpRequest={"requestMethod": "GET", "remoteIp": "%s:%d" % (r.client, r.port),
                                                    "serverIp": "10.0.0.1", "latency": "0.05s"}, timestamp=r.iso),
    "cloudflare": lambda r: obj(ClientIP=r.client, ClientRequestHost="www", EdgeStartTimestamp=r.iso,
                                OriginIP="10.0.0.1"),
    "cloudflare nanoseconds": lambda r: obj(ClientIP=r.client, EdgeStartTimestamp=r.us * 1000, RayID="x"),
    "fastly": lambda r: obj(timestamp=r.zone, client_ip=r.client, host="www.example.com", url=r.path, status=200),
    "vercel": lambda r: obj(id="x", timestamp=r.ms, source="lambda", proxy={"clientIp": r.client, "path": r.path}),
    "caddy": lambda r: obj(level="info", ts=r.s + 0.25, logger="http.log.access", msg="handled request", request={
        "remote_ip": r.client, "remote_port": "1", "client_ip": r.client, "host": "www", "uri": r.path, "headers": {
            "X-Forwarded-For": ["10.9.9.9"]}}, duration=0.0009, status=200),
    "caddy console": lambda r: "2026/11/10 %s.250\tINFO\thttp.log.access\thandled request\t%s" % (
        r.clock, obj(request={"remote_ip": r.client, "uri": r.path}, duration=0.01, status=200)),
    "traefik json": lambda r: obj(ClientAddr="%s:%d" % (r.client, r.port), ClientHost=r.client, ClientPort=str(r.port),
                                  Duration=1200, RequestPath=r.path, StartUTC=r.iso, level="info", time=r.zone),
    "envoy text": '[{0.iso}] "GET {0.path} HTTP/2" 200 - 0 13 5 4 "10.0.0.9, {0.client}" "-" "id" "www" "10.0.2.1:80"',
    "envoy json": lambda r: obj(start_time=r.iso, method="GET", path=r.path, duration=5, x_forwarded_for="10.0.0.9",
                                upstream_host="10.0.2.1:80", downstream_remote_address="%s:%d" % (r.client, r.port)),
    "istio text": '[{0.iso}] "GET {0.path} HTTP/1.1" 200 - via_upstream - "-" 0 135 2 1 "-" "curl" "id" "httpbin:8000" '
                  '"127.0.0.1:80" inbound|8000|| 127.0.0.6:53971 10.44.1.23:80 {0.client}:{0.port} sni default',
    "istio json": lambda r: obj(authority="www", bytes_sent=5, downstream_local_address="10.44.1.23:80",
                                downstream_remote_address="%s:%d" % (r.client, r.port), start_time=r.iso, duration=2,
                                upstream_local_address="127.0.0.6:53971"),
    "ecs": lambda r: obj(**{"@timestamp": r.iso, "source": {"address": r.client, "ip": r.client}, "destination": {
        "ip": "10.0.0.1"}, "host": {"ip": ["10.0.0.2"]}, "url": {"path": r.path}, "event": {"duration": 12000}}),
    "ecs with points": lambda r: obj(**{"@timestamp": r.iso, "client.ip": r.client, "url.path": r.path}),
    "nginx json": lambda r: obj(time_local=r.clf, remote_addr=r.client, request_time="0.005", status="200",
                                http_x_forwarded_for="-"),
    "nginx json msec": lambda r: obj(msec="%d.250" % r.s, remote_addr=r.client, request_time=0.005),
    "nginx json iso": lambda r: obj(time_iso8601=r.zone, remoteAddr=r.client, requestTime="0.005"),
    "apache json": lambda r: obj(time="[%s]" % r.clf, remoteIP=r.client, host="www.example.com", request=r.path),
    "kong": lambda r: obj(started_at=r.ms, client_ip=r.client, request={"uri": r.path}, latencies={"request": 9}),
    "pino": lambda r: obj(level=30, time=r.ms, pid=7, hostname="web", req={
        "id": r.i, "method": "GET", "url": r.path, "remoteAddress": r.client, "remotePort": r.port}, responseTime=3),
    "pino express": lambda r: obj(level=30, time=r.ms, req={"method": "GET", "headers": {"host": "www"},
                                                            "remoteAddress": "::ffff:" + r.client}),
    "bunyan": lambda r: obj(name="app", hostname="web", pid=7, level=30, remoteAddress=r.client, msg="", time=r.iso, v=0),
    "zap": lambda r: obj(level="info", ts=r.s + 0.5, caller="http/server.go:10", msg="request", remote_addr=r.client,
                         latency=0.02),
    "slog": lambda r: obj(time=r.iso, level="INFO", msg="request", remote="%s:%d" % (r.client, r.port), dur=12345),
    "zerolog": lambda r: obj(level="info", ip=r.client, req_id="x", time=r.s, message="request"),
    "spring": lambda r: obj(**{"@timestamp": r.iso, "logger_name": "access", "remote-host": r.client, "elapsed_time": 4}),
    "kubernetes audit": lambda r: obj(kind="Event", verb="get", sourceIPs=[r.client], requestURI=r.path,
                                      requestReceivedTimestamp=r.iso, stageTimestamp=r.iso),
    "suricata": lambda r: obj(timestamp=r.zone, event_type="http", src_ip=r.client, src_port=r.port, dest_ip="10.0.0.1"),
    "zeek json": lambda r: obj(**{"ts": r.s + 0.25, "uid": "C", "id.orig_h": r.client, "id.resp_h": "10.0.0.1"}),
    "mongodb": lambda r: obj(t={"$date": r.zone}, s="I", c="NETWORK", attr={"remote": "%s:%d" % (r.client, r.port)}),
    "camel case": lambda r: obj(eventTime=r.iso, clientIpAddress=r.client, responseTime=0.2),
    "milliseconds": lambda r: obj(timestampMs=r.ms, clientAddress=r.client),
    "heroku": '{0.zone} heroku[router]: at=info method=GET path="{0.path}" host=www.example.com fwd="{0.client}" '
              'dyno=web.1 connect=0ms service=18ms status=200 bytes=13',
    "logfmt": 'ts={0.iso} level=info msg="served a request" remote_addr={0.client}:{0.port} path={0.path} took=3ms',
    "grafana": 'logger=context t={0.iso} level=info msg="Request Completed" method=GET path={0.path} status=302 '
               'remote_addr={0.client} time_ms=1 duration=1.5ms',
    "squid": "{0.s}.391    104 {0.client} TCP_MISS/200 904 GET http://example.com{0.path} - HIER_DIRECT/203.0.113.10 "
             "text/html",
    "nginx error": '{0.slash} [error] 31#31: *46 limiting requests, excess: 5.560 by zone "one", client: {0.client}, '
                   'server: localhost, request: "GET {0.path} HTTP/1.1", host: "localhost"',
    "nginx error delaying": '{0.slash} [warn] 31#31: *46 delaying request, excess: 0.560, by zone "one", client: '
                            '{0.client}, server: localhost, request: "GET {0.path} HTTP/1.1", host: "localhost"',
    "sshd": "{0.stamp} web sshd[7]: Failed password for root from {0.client} port {0.port} ssh2",
    "sshd rsyslog": "{0.zone} web sshd-session[7]: Accepted publickey for ada from {0.client} port {0.port} ssh2",
    "rails": 'Started GET "{0.path}" for {0.client} at {0.space} +0000',
    "rails logger": 'I, [2026-11-10T{0.clock}.250000 #7]  INFO -- : Started GET "{0.path}" for {0.client} at {0.space} +0000',
    "csv": ["time,client,tokens", "{0.iso},{0.client},63.0"],
    "csv camel case": ["requestTime,clientIp,size", "{0.ms},{0.client},63"],
    "csv date and time": ["date,time,c-ip", "2026-11-10,{0.clock},{0.client}"],
    "csv users": ["timestamp,user_id", "{0.s},{0.client}"],
    "csv semicolons": ["timestamp;client_ip;status", "{0.space};{0.client}:{0.port};200"],
    "tsv": ["ts\tsrc_ip\tpath", "{0.s}.5\t{0.client}\t{0.path}"],
    "csv headerless": "{0.us},{0.client},1",
    "uvicorn with a time": '{0.space},130 INFO:     {0.client}:{0.port} - "GET {0.path} HTTP/1.1" 200 OK',
    "uvicorn in a container": '{0.iso} stdout F INFO:     {0.client}:{0.port} - "GET {0.path} HTTP/1.1" 200 OK',
    "gin": '[GIN] 2026/11/10 - {0.clock} | 200 |     1.2ms | {0.client:>15} | GET      "{0.path}"',
    "chi": '{0.slash} "GET http://localhost{0.path} HTTP/1.1" from {0.client}:{0.port} - 200 5B in 1.2ms',
    "flask behind python's logging": 'INFO:werkzeug:{0.client} - - [10/Nov/2026 {0.clock}] "GET {0.path} HTTP/1.1" 200 -',
    "kubectl logs --prefix": "[pod/web-0/nginx] " + COMBINED,
    "heroku drain": '<158>1 {0.zone} host heroku router - at=info method=GET path="{0.path}" fwd="{0.client}" status=200',
    # Without a time or a client, or with both unclear: these can only be refused.
    "uvicorn": 'INFO:     {0.client}:{0.port} - "GET {0.path} HTTP/1.1" 200 OK',
    "django": '[10/Nov/2026 {0.clock}] "GET {0.path} HTTP/1.1" 200 512',
    "postfix": "{0.stamp} mail postfix/smtpd[7]: connect from unknown[{0.client}]",
    "rsyncd": "{0.slash} [7] connect from host.example.com ({0.client})",
    "morgan dev": "GET {0.path} 200 3.102 ms - 512",
    "json with a host": lambda r: obj(time=r.iso, host=r.client + ".example.com", path=r.path),
    "json with relative times": lambda r: obj(time=r.i, client_ip=r.client),
    "json with a duration": lambda r: obj(time=0.005, client_ip=r.client),
    "json with unknown names": lambda r: obj(whenever=r.iso, whom=r.client, by="10.0.0.1"),
    "csv with relative times": ["Timestamp,Model,tokens", "{0.i},GPT-4,63"],
    "csv with unknown names": ["whenever,whom", "{0.iso},{0.client}"],
}


def write(name, form):
    first, form = form if isinstance(form, list) else (None, form)
    lines = [first] if first else []
    lines += [form(At(i)) if callable(form) else form.format(At(i)) for i in range(COUNT)]
    path = name.replace(" ", "_").replace("/", "_") + ".log"
    with open(path, "w", encoding="utf-8") as out:
        out.write("\n".join(lines) + "\n")
    return path


def main():
    counts = {"right": 0, "refused": 0, "wrong": 0}
    for name, form in FORMATS.items():
        run = subprocess.run([WEIR, "replay", "--json", "--top", "99", "--year", "2026", "-p",
                              "fixed_window limit=1 period=1h", write(name, form)], capture_output=True, text=True, check=False)
        verdict = "refused"
        if run.returncode == 0:
            report = json.loads(run.stdout)
            keys = sorted(key["key"] for key in report["top_keys"])
            times = [report[end]["time_us"] // 1000000 for end in ("first", "last")]
            is_right = report["requests"] == COUNT and keys == sorted(CLIENTS) and times == [FIRST, FIRST + COUNT - 1]
            verdict = "right" if is_right else "wrong"
        elif run.returncode not in (1, 2) or not run.stderr.strip():
            verdict = "wrong"
        counts[verdict] += 1
        if verdict != "right":
            print("%s: %s: %s" % (verdict, name, run.stderr.strip().split("\n")[0]))
    print("%d formats: %d detected rightly, %d refused, %d wrong" % (len(FORMATS), counts["right"], counts["refused"],
                                                                  counts["wrong"]))
    # Those that say neither who nor when are the only ones that may be refused.
    return 0 if counts["wrong"] == 0 and counts["refused"] <= 12 else 1


sys.exit(main())
