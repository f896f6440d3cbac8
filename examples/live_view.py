#!/usr/bin/env python3
"""Draws docs/live-view.svg: runs windlass-sandbox in a terminal of its own, changes an image in the middle, and renders the
screen as it is a moment later.

    cargo build --bin windlass-sandbox
    examples/live_view.py target/debug/windlass-sandbox docs/live-view.svg

It needs Python's standard library only, and a system with pseudo-terminals (Linux, macOS).
"""

import codecs, fcntl, html, json, os, pty, re, select, signal, socket, struct, sys, tempfile, termios, time
import urllib.request

COLUMNS, ROWS = 126, 18
COLOURS = {31: "#ff7b72", 32: "#7ee787", 33: "#e3b341"}
SEQUENCE = re.compile(r"\x1b\[([?>]?)([0-9;:]*)([A-Za-z])|\x1b[()][A-Z0-9]|\x1b[=>78]")


class Screen:
    """The little of a terminal that the live view uses: moves, erasures, colours and bold."""

    def __init__(self):
        self.cells = [[(" ", None, False)] * COLUMNS for _ in range(ROWS)]
        self.row = self.column = 0
        self.colour, self.bold = None, False
        self.rest = ""

    def feed(self, text):
        text = self.rest + text
        at = 0
        while at < len(text):
            if text[at] == "\x1b":
                sequence = SEQUENCE.match(text, at)
                if not sequence:  # It goes on in what is read next.
                    break
                at = sequence.end()
                if sequence.group(3) and not sequence.group(1):
                    numbers = [int(number or 0) for number in re.split("[;:]", sequence.group(2))]
                    self.control(sequence.group(3), numbers)
            else:
                self.put(text[at])
                at += 1
        self.rest = text[at:]

    def put(self, character):
        if character == "\r":
            self.column = 0
        elif character == "\n":
            self.row = min(self.row + 1, ROWS - 1)
        elif character >= " " and self.column < COLUMNS:
            self.cells[self.row][self.column] = (character, self.colour, self.bold)
            self.column += 1

    def control(self, kind, numbers):
        if kind == "H":
            row, column = (numbers + [1])[:2]
            self.row, self.column = min(max(row, 1), ROWS) - 1, min(max(column, 1), COLUMNS) - 1
        elif kind == "J":
            self.cells = [[(" ", None, False)] * COLUMNS for _ in range(ROWS)]
        elif kind == "K":
            self.cells[self.row][self.column :] = [(" ", None, False)] * (COLUMNS - self.column)
        elif kind == "m":
            self.style(numbers)

    def style(self, numbers):
        if numbers[:2] == [38, 5]:  # One of the 256 colours; the first eight are those of 30 to 37.
            numbers = [30 + numbers[2]]
        for number in numbers:
            if number in (0, 22):
                self.bold = False
            if number in (0, 39):
                self.colour = None
            if number == 1:
                self.bold = True
            if number in COLOURS:
                self.colour = COLOURS[number]

    def text(self):
        return "\n".join("".join(character for character, *_ in row).rstrip() for row in self.cells)

    def svg(self, names):
        width, height, margin = 8.4, 19, 16
        size = f'width="{COLUMNS * width + 2 * margin:.0f}" height="{ROWS * height + 2 * margin}"'
        lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="ui-monospace, monospace" font-size="14"'
            ' style="white-space: pre">',
            "<title>The live view of windlass-sandbox in the middle of a rollout</title>",
            '<rect width="100%" height="100%" rx="8" fill="#0d1117"/>',
        ]
        for number, row in enumerate(self.cells):
            start = 0
            while start < COLUMNS:
                style = row[start][1:]
                end = next((at for at in range(start, COLUMNS) if row[at][1:] != style), COLUMNS)
                run = "".join(character for character, *_ in row[start:end]).rstrip()
                for name, shown in names.items():
                    run = run.replace(name, shown)
                if run:
                    colour, bold = style[0] or "#c9d1d9", ' font-weight="bold"' if style[1] else ""
                    x = margin + (start + len(run) - len(run.lstrip())) * width
                    y, run = margin + number * height + 14, run.lstrip()
                    lines.append(
                        f'<text x="{x:.1f}" y="{y}" fill="{colour}"{bold} xml:space="preserve" '
                        f'textLength="{len(run) * width:.1f}">{html.escape(run)}</text>'
                    )
                start = end
        return "\n".join(lines) + "\n</svg>\n"


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def change_image(port, image):
    containers = [{"name": "nginx", "image": image}]
    body = json.dumps({"spec": {"template": {"spec": {"containers": containers}}}}).encode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/apis/apps/v1/namespaces/default/deployments/web",
        body,
        {"Content-Type": "application/strategic-merge-patch+json"},
        method="PATCH",
    )
    urllib.request.urlopen(request, timeout=10).close()


def main(program, picture):
    port = free_port()
    scratch = tempfile.TemporaryDirectory()
    kubeconfig = os.path.join(scratch.name, "windlass.kubeconfig")
    manifest = os.path.join(os.path.dirname(os.path.abspath(__file__)), "nginx.yaml")
    child, terminal = pty.fork()
    if child == 0:
        os.environ["TERM"] = "xterm"
        os.environ.pop("NO_COLOR", None)
        # The screen has its size before the program asks for it.
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        flags = ["-f", manifest, "--port", str(port), "--write-kubeconfig", kubeconfig, "--ready-delay", "2s"]
        os.execv(program, [program, *flags])
    screen, deadline = Screen(), time.monotonic() + 60
    decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def read_until(done):
        while not done() and time.monotonic() < deadline:
            if select.select([terminal], [], [], 0.1)[0]:
                screen.feed(decoder.decode(os.read(terminal, 65536)))
        if not done():
            sys.exit("the sandbox did not come so far:\n" + screen.text())

    try:
        read_until(lambda: "rolled out" in screen.text())
        change_image(port, "nginx:1.28")
        # The second new pod is on its way.
        read_until(lambda: "2 out of 3" in screen.text() or "2/3" in screen.text())
        until = time.monotonic() + 1
        read_until(lambda: time.monotonic() >= until)
        shown = screen.svg({kubeconfig: "windlass.kubeconfig", f":{port}": ":8080"})
        os.write(terminal, b"q")
    finally:
        os.kill(child, signal.SIGTERM)
        os.waitpid(child, 0)
    with open(picture, "w", encoding="utf-8") as file:
        file.write(shown)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(os.path.abspath(sys.argv[1]), sys.argv[2])
