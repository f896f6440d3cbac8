#!/usr/bin/env python3
"""The work of an end-to-end test: a Deployment becomes Available, a cascade ends, and a namespace goes.

    KUBEBUILDER_ASSETS=/path/to/assets test_web.py FOLDER    with the control plane of bed.py; FOLDER has Windlass' programs
    test_web.py --kubeconfig FILE                            with a sandbox that runs already
"""

from bed import control_plane

WEB = {
    "metadata": {"name": "web"},
    "spec": {
        "replicas": 3, "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "nginx", "image": "nginx:1.27"}]},
        },
    },
}


def test(server):
    namespace = "/api/v1/namespaces/shop"
    deployments = "/apis/apps/v1/namespaces/shop/deployments"
    server.request("POST", "/api/v1/namespaces", {"metadata": {"name": "shop"}})
    server.request("POST", deployments, WEB)
    server.eventually("Deployment web is Available",
                      lambda: server.get(f"{deployments}/web")["status"].get("availableReplicas") == 3)
    server.request("DELETE", f"{deployments}/web?propagationPolicy=Foreground")
    server.eventually("Deployment web is gone", lambda: server.get(f"{deployments}/web") is None)
    assert server.get(f"{namespace}/pods")["items"] == [], "its pods go before it"
    server.request("POST", f"{namespace}/configmaps", {"metadata": {"name": "prices"}})
    server.request("DELETE", namespace)
    server.eventually("Namespace shop is gone", lambda: server.get(namespace) is None)


if __name__ == "__main__":
    with control_plane(__doc__) as server:
        test(server)
