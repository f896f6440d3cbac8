"""A control plane that feels like a cluster: etcd, kube-apiserver and Windlass, and nothing else.

To copy into your own tests. KUBEBUILDER_ASSETS holds `etcd` and `kube-apiserver`, such as those that
`setup-envtest use -p path` downloads. Needs Python 3.10 and openssl, and no package.
"""

import json
import os
import pathlib
import re
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

TOKEN = "admin-of-this-test"


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Server:
    """An API server, such as that of `windlass-sandbox`."""

    def __init__(self, kubeconfig):
        # As the sandbox writes it: one server, without credentials.
        self.url = re.search(r"server: *\"?(http:[^\s\"]+)", pathlib.Path(kubeconfig).read_text())[1]
        self.context = None
        self.running = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def request(self, method, path, body=None, text=False):
        """Sends a request; raises an `urllib.error.HTTPError` if it is refused."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        with urllib.request.urlopen(request, context=self.context, timeout=10) as answer:
            content = answer.read()
        return content if text else json.loads(content)

    def get(self, path):
        """An object, or None if it does not exist."""
        try:
            return self.request("GET", path)
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
            raise

    def eventually(self, what, holds, patience=60):
        """Waits until `holds` is true, and says so."""
        end = time.monotonic() + patience
        while not holds():
            for process in self.running:
                if process.poll() is not None:
                    raise SystemExit(f"{process.args[0]} ended with {process.returncode}")
            if time.monotonic() > end:
                raise SystemExit(f"not within {patience} s: {what}")
            time.sleep(0.02)
        print(what)


class Bed(Server):
    """A control plane, for as long as the block runs. Other client libraries take the kubeconfig at `Bed.kubeconfig`."""

    def __init__(self, assets, programs):
        self.assets, self.programs = pathlib.Path(assets).resolve(), pathlib.Path(programs).resolve()
        self.folder = tempfile.TemporaryDirectory()
        self.work = pathlib.Path(self.folder.name)
        self.kubeconfig = self.work / "kubeconfig"
        self.running = []

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        # Nothing outlives the test. A kube-apiserver that is asked to end waits for its watches.
        for process in reversed(self.running):
            process.kill()
            process.wait()
        self.folder.cleanup()

    def launch(self, program, *flags):
        log = open(self.work / f"{program.name}.log", "wb")
        command = [program, *flags]
        self.running.append(subprocess.Popen(command, cwd=self.work, stdout=log, stderr=log))

    def start(self):
        store, peers, port = (free_port() for _ in range(3))
        store, peers = f"http://127.0.0.1:{store}", f"http://127.0.0.1:{peers}"
        self.url = f"https://127.0.0.1:{port}"
        self.launch(
            self.assets / "etcd", "--data-dir=etcd", "--unsafe-no-fsync",
            f"--listen-client-urls={store}", f"--advertise-client-urls={store}",
            f"--listen-peer-urls={peers}", f"--initial-advertise-peer-urls={peers}",
            f"--initial-cluster=default={peers}",
        )
        subprocess.run(["openssl", "genrsa", "-out", self.work / "sa.key", "2048"], check=True, capture_output=True)
        (self.work / "tokens.csv").write_text(f'{TOKEN},admin,admin,"system:masters"\n')
        # The admission plugin ServiceAccount stays on, as in a cluster: Windlass creates the accounts.
        self.launch(
            self.assets / "kube-apiserver", f"--etcd-servers={store}", f"--secure-port={port}",
            "--bind-address=127.0.0.1", "--cert-dir=certificates", "--authorization-mode=RBAC",
            "--token-auth-file=tokens.csv", "--service-account-issuer=https://localhost",
            "--service-account-key-file=sa.key", "--service-account-signing-key-file=sa.key",
            "--service-cluster-ip-range=10.0.0.0/24",
        )
        certificate = self.work / "certificates/apiserver.crt"
        self.kubeconfig.write_text(json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "bed",
            "clusters": [{"name": "bed", "cluster": {"server": self.url, "certificate-authority": str(certificate)}}],
            "users": [{"name": "admin", "user": {"token": TOKEN}}],
            "contexts": [{"name": "bed", "context": {"cluster": "bed", "user": "admin"}}],
        }))
        self.eventually("the API server is ready", self.is_ready)
        flag = f"--kubeconfig={self.kubeconfig}"
        self.launch(self.programs / "windlass", "--test-bed", flag)
        self.launch(self.programs / "windlass-sandbox", "nodes", "--nodes=3", flag)

    def is_ready(self):
        certificate = self.work / "certificates/apiserver.crt"
        if not certificate.exists():
            return False
        try:
            self.context = ssl.create_default_context(cafile=certificate)
            return self.request("GET", "/readyz", text=True) == b"ok"
        except (OSError, ssl.SSLError):
            # It does not listen yet, or answers that it is not ready.
            return False


def control_plane(usage):
    """The one that the command line asks for."""
    match sys.argv[1:]:
        case ["--kubeconfig", file]:
            return Server(file)
        case [folder] if "KUBEBUILDER_ASSETS" in os.environ:
            return Bed(os.environ["KUBEBUILDER_ASSETS"], folder)
        case _:
            raise SystemExit(usage)
