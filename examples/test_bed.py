#!/usr/bin/env python3
"""Tests against a control plane that feels like a cluster: etcd, kube-apiserver and Windlass, and nothing else.

    KUBEBUILDER_ASSETS=/path/to/assets examples/test_bed.py FOLDER

FOLDER holds `windlass` and `windlass-sandbox`; KUBEBUILDER_ASSETS holds `etcd` and `kube-apiserver`, such as those that
`setup-envtest use -p path` downloads. Needs Python 3.9 and openssl, and no package.

`Bed` is the part to copy into your own tests: your client library takes the kubeconfig at `Bed.kubeconfig`.
"""

import json
import os
import pathlib
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


class Bed:
    """A control plane, for as long as the block runs."""

    def __init__(self, assets, programs):
        self.assets, self.programs = pathlib.Path(assets), pathlib.Path(programs)
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
        self.eventually("the API server is ready", lambda: certificate.exists() and self.get("/readyz", text=True))
        flag = f"--kubeconfig={self.kubeconfig}"
        self.launch(self.programs / "windlass", "--test-bed", flag)
        self.launch(self.programs / "windlass-sandbox", "nodes", "--nodes=3", flag)

    def request(self, method, path, body=None, text=False):
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        context = ssl.create_default_context(cafile=self.work / "certificates/apiserver.crt")
        with urllib.request.urlopen(request, context=context, timeout=10) as answer:
            content = answer.read()
        return content if text else json.loads(content)

    def get(self, path, text=False):
        """An object, or None if it does not exist or the server does not answer."""
        try:
            return self.request("GET", path, text=text)
        except (urllib.error.URLError, ConnectionError):
            return None

    def eventually(self, what, holds, patience=60):
        """Waits until `holds` is true; returns the seconds that it took."""
        begun = time.monotonic()
        while not holds():
            for process in self.running:
                if process.poll() is not None:
                    raise SystemExit(f"{process.args[0]} ended with {process.returncode}")
            if time.monotonic() - begun > patience:
                raise SystemExit(f"not within {patience} s: {what}")
            time.sleep(0.02)
        return time.monotonic() - begun


def play(bed):
    for namespace in ("one", "two"):
        begun = time.monotonic()
        bed.request("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
        deployments = f"/apis/apps/v1/namespaces/{namespace}/deployments"
        bed.request("POST", deployments, {
            "metadata": {"name": "web"},
            "spec": {
                "replicas": 3, "selector": {"matchLabels": {"app": "web"}},
                "template": {
                    "metadata": {"labels": {"app": "web"}},
                    "spec": {"containers": [{"name": "nginx", "image": "nginx:1.27"}]},
                },
            },
        })
        available = lambda: (bed.get(f"{deployments}/web")["status"].get("availableReplicas") == 3)
        bed.eventually("the Deployment is Available", available)
        print(f"Deployment {namespace}/web is Available after {time.monotonic() - begun:.2f} s")
    account = bed.get("/api/v1/namespaces/one/serviceaccounts/default")
    print("ServiceAccount one/default", "exists" if account else "is missing")
    published = bed.get("/api/v1/namespaces/one/configmaps/kube-root-ca.crt")["data"]["ca.crt"]
    print("ConfigMap one/kube-root-ca.crt begins with", published.splitlines()[0])
    view = bed.get("/apis/rbac.authorization.k8s.io/v1/clusterroles/view")
    print(f"ClusterRole view has {len(view['rules'])} rules")
    claims = "/api/v1/namespaces/one/persistentvolumeclaims"
    resources = {"requests": {"storage": "1Gi"}}
    spec = {"accessModes": ["ReadWriteOnce"], "resources": resources}
    bed.request("POST", claims, {"metadata": {"name": "data"}, "spec": spec})
    bed.request("DELETE", f"{claims}/data")
    took = bed.eventually("the claim is gone", lambda: bed.get(f"{claims}/data") is None)
    print(f"PersistentVolumeClaim one/data is gone after {took:.2f} s")
    bed.request("DELETE", "/apis/apps/v1/namespaces/one/deployments/web?propagationPolicy=Background")
    took = bed.eventually("its pods are gone", lambda: not bed.get("/api/v1/namespaces/one/pods")["items"])
    print(f"The pods of Deployment one/web are gone after {took:.2f} s")
    bed.request("DELETE", "/api/v1/namespaces/two")
    took = bed.eventually("the namespace is gone", lambda: bed.get("/api/v1/namespaces/two") is None)
    print(f"Namespace two is gone after {took:.2f} s")


def main():
    if len(sys.argv) != 2 or "KUBEBUILDER_ASSETS" not in os.environ:
        raise SystemExit(__doc__)
    with Bed(pathlib.Path(os.environ["KUBEBUILDER_ASSETS"]).resolve(), pathlib.Path(sys.argv[1]).resolve()) as bed:
        play(bed)


if __name__ == "__main__":
    main()
