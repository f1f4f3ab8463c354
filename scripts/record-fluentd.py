#!/usr/bin/env python3
"""Records what a Fluentd that is installed answers and stores: the table that the bar `listen-compat` replays.

    scripts/record-fluentd.py tests/data/fluentd.jsonl [COMMAND]

COMMAND runs Fluentd (`fluentd` unless given), with any options. Each request is sent to a Fluentd with the JSON library
Oj and to one with Yajl; the first line of the table names the versions. In the table a character of `body` and `stored`
is a byte, and the time of an event is `now` where Fluentd took the time of arrival.
"""
import datetime, gzip, http.client, json, os, shlex, signal, socket, subprocess, sys, tempfile, time, zlib

PARSE = {
    "default": "",
    "json": "<parse>\n@type json\n</parse>",
    "json-time": "<parse>\n@type json\ntime_key t\nkeep_time_key true\ntime_format %Y-%m-%dT%H:%M:%S%z\n</parse>",
}
JSON, NDJSON, FORM = "application/json", "application/x-ndjson", "application/x-www-form-urlencoded"
MULTIPART = "multipart/form-data; boundary=xx"
TYPES = [JSON, NDJSON, "text/plain", None]
BODIES = [
    '{"a":1}', ' { "a" : "\\u00e9\\/" ,\n "b":[1, {}] }\n', '[{"a":1},{"b":2}]', '[]', '{}', '', ' ', '5', '"x"', 'null', 'true',
    '[{"a":1},5]', '[5]', '[[{"a":1}]]', '[{"a":1},null]', '[null]', '{"bad', '[{"a":1}', '{"a":1}x', '{"a":1}\n{"b":2}\n',
    '{"a":1}\r\n{"b":2}\r\n', '{"a":1}\n\n{"b":2}', '{"a":1}\nno\n{"b":2}', '{"a":1}\n5\n', '{"a":1}\n[{"b":2},{"c":3}]\n',
    '{"a":1}\nnull\n', '\n', '{"a":1} {"b":2}', '{"a":1,}', "{'a':1}", '{"a":NaN}', '{"a":1} // x', '/*x*/{"a":1}', '{"a":01}',
    '{"a":1,"a":2}', '{"a":1e400}', '{"a":-0.0,"b":1e15,"c":12345678901234567890.5}', '{"a":"\\ud800"}', '{"a":"\xff"}',
    '\xef\xbb\xbf{"a":1}', '{"a":"\x01"}', '{"a":"x\ty"}', '{"a":"\\u2028\\u007f</"}', '{"a":"\\u0000"}', '{"":1}', '{"a":{"a":null}}',
    '{"a":' * 127 + '1' + '}' * 127, '{"a":' * 600 + '1' + '}' * 600, '\x81\xa1a\x01',
]
TIMES = ['1573552801', '1573552801.25', '"1573552801"', '"2019-11-12T10:00:01+0000"', '"soon"', 'null', 'false', '{}', '-1', '1e300', '""']
FORMS = [
    'json=%7B%22a%22%3A1%7D', 'ndjson=%7B%22a%22%3A1%7D%0A%7B%22b%22%3A2%7D', 'x=1', 'json=', 'json=%7B', 'json=5', 'json',
    'json=%7B%22a%22%3A1%7D&time=12', 'ndjson=%7B%7D%0Ano', 'json=%7B%7D&ndjson=%7B%22b%22%3A2%7D', 'json=%7B%22a%22%3A%22b+c%22%7D',
    'json=%7B%22a%22%3A1%7D;x=2', 'json=%7B%22a%22%3A1%7D&json=%7B%22b%22%3A1%7D', 'json=%5B%5D', 'json={"a":1}', 'msgpack=%81%A1a%01',
]
PATHS = ['/', '//h/r#', '/r#/a/b/', '/r#//c', '/r#/a%20b', '/r#/%zz', '/r#/a|b', '/r#?time=12.5', '/r#?time=0', '/r#?time=soon', '/r#?time=1e2x', '/r#?time=',
         '/r#?time=-1', '/r#?json=%7B%22q%22%3A1%7D', '/r#?ndjson=%7B%7D', '/r#?x=%zz', '/r#?x=|']


def part(name, value):
    return f'--xx\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'


def requests():
    """Content type, content encoding, path, in which # is the number of the request, and body."""
    for kind in TYPES:
        for body in BODIES:
            yield kind, None, '/r#', body
    for key in ['time', 't']:
        for value in TIMES:
            yield JSON, None, '/r#', '{"%s":%s,"a":1}' % (key, value)
        yield JSON, None, '/r#', '[{"%s":1,"a":1},{"%s":2,"b":2}]' % (key, key)
    for body in FORMS:
        yield FORM, None, '/r#', body
    good, other = part('json', '{"a":1}'), part('x', '1')
    for body in [good + '--xx--\r\n', other + good + '--xx--', part('ndjson', '{"a":1}\n{"b":2}') + '--xx--\r\n', other + '--xx--\r\n', good,
                 good + part('time', '12') + '--xx--\r\n', good * 2 + '--xx--\r\n', good + '--xx\r\n', good + '--xx\r\n' + good[:-2], part('json', '{"bad') + '--xx--\r\n', good.replace('\r\n', '\n') + '--xx--\n', '']:
        yield MULTIPART, None, '/r#', body
    for kind in [JSON + '; charset=utf-8', 'Application/JSON', 'application/json-patch+json', 'application/csp-report', 'application/msgpack',
                 'application/octet-stream', 'multipart/form-data', FORM + '; charset=x', ' application/json']:
        yield kind, None, '/r#', '{"a":1}'
    packed = gzip.compress(b'{"a":1}', mtime=0).decode('latin1')
    deflated = zlib.compress(b'{"a":1}').decode('latin1')
    for encoding, body in [('gzip', packed), ('gzip', packed[:-4]), ('gzip', packed * 2), ('gzip', packed + 'x'), ('gzip', '{"a":1}'),
                           ('deflate', deflated), ('deflate', deflated[2:-4]), ('deflate', deflated + 'x'), ('deflate', 'x'), ('GZIP', packed),
                           ('br', '{"a":1}'), ('zstd', '{"a":1}'), ('identity', '{"a":1}'), ('gzip', '')]:
        yield JSON, encoding, '/r#', body
    for path in PATHS:
        yield JSON, None, path, '{"a":1}'
        if '=' in path:
            yield None, None, path, ''
            yield 'text/plain', None, path, '{"b":2}'
            yield NDJSON, None, path, '{"time":5,"a":1}\n{"b":2}'
            yield JSON, None, path, '{"time":5,"a":1}'


def send(port, kind, encoding, path, body):
    client = http.client.HTTPConnection('127.0.0.1', port, timeout=10)
    try:
        client.putrequest('POST', path)
        for name, value in [('Content-Type', kind), ('Content-Encoding', encoding), ('Content-Length', str(len(body)))]:
            if value is not None:
                client.putheader(name, value)
        client.endheaders(body)
        return client.getresponse().status
    except (http.client.HTTPException, ConnectionError):
        return 0  # Closed without a word.
    finally:
        client.close()


def record(command, library, parse, rows):
    """Sends the requests of a parse section to a Fluentd of its own."""
    with tempfile.TemporaryDirectory() as folder:
        with socket.socket() as free:
            free.bind(('127.0.0.1', 0))
            port = free.getsockname()[1]
        with open(folder + '/fluent.conf', 'w') as file:
            file.write(f'<source>\n@type http\nport {port}\nbind 127.0.0.1\n{PARSE[parse]}\n</source>\n<match fluent.**>\n@type null\n</match>\n'
                       f'<match **>\n@type file\npath {folder}/out\nappend true\n<buffer []>\n@type memory\nflush_mode lazy\nflush_at_shutdown true\n'
                       '</buffer>\n<format>\n@type out_file\n</format>\n</match>\n')
        env = dict(os.environ, TZ='UTC')
        if library == 'yajl':  # As if Oj were not installed.
            open(folder + '/oj.rb', 'w').write('raise LoadError, "not this time"\n')
            env['RUBYLIB'] = folder + ':' + env.get('RUBYLIB', '')
        log = open(folder + '/log', 'w+')
        began = int(time.time())
        fluentd = subprocess.Popen(command + ['-c', folder + '/fluent.conf', '--no-supervisor'], env=env, stdout=log, stderr=log)
        try:
            for _ in range(300):
                if fluentd.poll() is not None:
                    sys.exit(open(folder + '/log').read())
                try:
                    socket.create_connection(('127.0.0.1', port)).close()
                    break
                except OSError:
                    time.sleep(0.1)
            statuses = [send(port, kind, encoding, path.replace('#', str(number)), body.encode('latin1'))
                        for number, (kind, encoding, path, body) in enumerate(rows)]
        finally:
            fluentd.send_signal(signal.SIGTERM)
            fluentd.wait(60)
        ended, stored = time.time(), {}
        try:
            text = open(folder + '/out.log', encoding='latin1', newline='').read()
        except FileNotFoundError:
            text = ''
        for line in text.split('\n')[:-1]:
            when, tag, event = line.split('\t', 2)
            try:
                seconds = datetime.datetime.fromisoformat(when).timestamp()
            except ValueError:
                seconds = 0
            stored.setdefault(tag.split('.')[0], []).append([('now' if began <= seconds <= ended else when), tag, event])
        return [{'status': status, 'stored': stored.get('' if rows[number][2] == '/' else f'r{number}', [])}
                for number, status in enumerate(statuses)]


def main():
    command = shlex.split(sys.argv[2]) if len(sys.argv) > 2 else ['fluentd']
    version = subprocess.run(command + ['--version'], capture_output=True, text=True).stdout.strip()
    about = {'recorded': version, 'ruby': subprocess.run(['ruby', '-e', 'print RUBY_VERSION'], capture_output=True, text=True).stdout}
    about['oj'] = subprocess.run(['ruby', '-roj', '-e', 'print Oj::VERSION'], capture_output=True, text=True).stdout
    everything = list(requests())
    with open(sys.argv[1], 'w') as out:
        print(json.dumps(about), file=out)
        for parse in PARSE:
            # Of the last, only what has to do with times.
            rows = [row for row in everything if parse != 'json-time' or row[3].startswith(('{"t', '[{"t'))]
            both = [record(command, library, parse, rows) for library in ['oj', 'yajl']]
            for number, (row, oj, yajl) in enumerate(zip(rows, *both)):
                kind, encoding, path, body = row
                fields = {'parse': parse, 'type': kind, 'encoding': encoding, 'path': path.replace('#', str(number)), 'body': body, **oj}
                if yajl != oj:
                    fields['yajl'] = yajl
                print(json.dumps({name: value for name, value in fields.items() if value is not None}), file=out)


main()
