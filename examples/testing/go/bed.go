// Package testbed starts a control plane that feels like a cluster: etcd, kube-apiserver and Windlass, and nothing else.
//
// To copy into your own tests. KUBEBUILDER_ASSETS holds etcd and kube-apiserver, such as those that
// `setup-envtest use -p path` downloads; windlass and windlass-sandbox are in PATH.
package testbed

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

const token = "admin-of-this-test"

// Start runs a control plane until the test ends.
func Start(t *testing.T) *rest.Config {
	t.Helper()
	assets, work := os.Getenv("KUBEBUILDER_ASSETS"), t.TempDir()
	store, peers, port := freePort(t), freePort(t), freePort(t)
	storeURL, peersURL := fmt.Sprintf("http://127.0.0.1:%d", store), fmt.Sprintf("http://127.0.0.1:%d", peers)
	writeKey(t, filepath.Join(work, "sa.key"))
	write(t, filepath.Join(work, "tokens.csv"), token+",admin,admin,\"system:masters\"\n")

	launch(t, work, filepath.Join(assets, "etcd"), "--data-dir=etcd", "--unsafe-no-fsync",
		"--listen-client-urls="+storeURL, "--advertise-client-urls="+storeURL,
		"--listen-peer-urls="+peersURL, "--initial-advertise-peer-urls="+peersURL,
		"--initial-cluster=default="+peersURL)
	// The admission plugin ServiceAccount stays on, as in a cluster: Windlass creates the accounts.
	launch(t, work, filepath.Join(assets, "kube-apiserver"), "--etcd-servers="+storeURL,
		fmt.Sprintf("--secure-port=%d", port), "--bind-address=127.0.0.1", "--cert-dir=certificates",
		"--authorization-mode=RBAC", "--token-auth-file=tokens.csv",
		"--service-account-issuer=https://localhost", "--service-account-key-file=sa.key",
		"--service-account-signing-key-file=sa.key", "--service-cluster-ip-range=10.0.0.0/24")

	config := &rest.Config{
		Host:            fmt.Sprintf("https://127.0.0.1:%d", port),
		BearerToken:     token,
		TLSClientConfig: rest.TLSClientConfig{CAFile: filepath.Join(work, "certificates", "apiserver.crt")},
	}
	waitUntilReady(t, config)
	kubeconfig := filepath.Join(work, "kubeconfig")
	writeKubeconfig(t, config, kubeconfig)
	launch(t, work, "windlass", "--test-bed", "--kubeconfig="+kubeconfig)
	launch(t, work, "windlass-sandbox", "nodes", "--nodes=3", "--kubeconfig="+kubeconfig)
	return config
}

func freePort(t *testing.T) int {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port
}

func write(t *testing.T, path, text string) {
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// writeKey writes the key with which the API server signs and checks the tokens of ServiceAccounts.
func writeKey(t *testing.T, path string) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	block := &pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}
	write(t, path, string(pem.EncodeToMemory(block)))
}

// launch starts a program that ends with the test. A kube-apiserver that is asked to end waits for its watches.
func launch(t *testing.T, work, program string, flags ...string) {
	log, err := os.Create(filepath.Join(work, filepath.Base(program)+".log"))
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command(program, flags...)
	command.Dir, command.Stdout, command.Stderr = work, log, log
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
		_ = log.Close()
		if t.Failed() {
			text, _ := os.ReadFile(log.Name())
			t.Logf("%s:\n%s", program, text)
		}
	})
}

func waitUntilReady(t *testing.T, config *rest.Config) {
	end := time.Now().Add(time.Minute)
	for {
		// It makes its certificate when it starts.
		client, err := discovery.NewDiscoveryClientForConfig(config)
		if err == nil {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			err = client.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
			cancel()
		}
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the API server is not ready: %v", err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func writeKubeconfig(t *testing.T, config *rest.Config, path string) {
	file := api.NewConfig()
	file.Clusters["bed"] = &api.Cluster{Server: config.Host, CertificateAuthority: config.CAFile}
	file.AuthInfos["admin"] = &api.AuthInfo{Token: config.BearerToken}
	file.Contexts["bed"] = &api.Context{Cluster: "bed", AuthInfo: "admin"}
	file.CurrentContext = "bed"
	if err := clientcmd.WriteToFile(*file, path); err != nil {
		t.Fatal(err)
	}
}
