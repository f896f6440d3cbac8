package testbed

import (
	"context"
	"testing"
	"time"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

func TestWeb(t *testing.T) {
	client, ctx := kubernetes.NewForConfigOrDie(Start(t)), t.Context()
	namespaces, deployments := client.CoreV1().Namespaces(), client.AppsV1().Deployments("shop")
	shop := &core.Namespace{ObjectMeta: meta.ObjectMeta{Name: "shop"}}
	if _, err := namespaces.Create(ctx, shop, meta.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := deployments.Create(ctx, web(), meta.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "Deployment web is Available", func(ctx context.Context) bool {
		web, err := deployments.Get(ctx, "web", meta.GetOptions{})
		return err == nil && web.Status.AvailableReplicas == 3
	})

	foreground := meta.DeletePropagationForeground
	if err := deployments.Delete(ctx, "web", meta.DeleteOptions{PropagationPolicy: &foreground}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "Deployment web is gone", func(ctx context.Context) bool {
		_, err := deployments.Get(ctx, "web", meta.GetOptions{})
		return errors.IsNotFound(err)
	})
	pods, err := client.CoreV1().Pods("shop").List(ctx, meta.ListOptions{})
	if err != nil || len(pods.Items) > 0 {
		t.Fatalf("its pods go before it: %v %v", pods, err)
	}

	if err := namespaces.Delete(ctx, "shop", meta.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "Namespace shop is gone", func(ctx context.Context) bool {
		_, err := namespaces.Get(ctx, "shop", meta.GetOptions{})
		return errors.IsNotFound(err)
	})
}

func web() *apps.Deployment {
	replicas, labels := int32(3), map[string]string{"app": "web"}
	return &apps.Deployment{
		ObjectMeta: meta.ObjectMeta{Name: "web"},
		Spec: apps.DeploymentSpec{
			Replicas: &replicas,
			Selector: &meta.LabelSelector{MatchLabels: labels},
			Template: core.PodTemplateSpec{
				ObjectMeta: meta.ObjectMeta{Labels: labels},
				Spec:       core.PodSpec{Containers: []core.Container{{Name: "nginx", Image: "nginx:1.27"}}},
			},
		},
	}
}

func eventually(t *testing.T, what string, holds func(context.Context) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for !holds(ctx) {
		if ctx.Err() != nil {
			t.Fatalf("not within a minute: %s", what)
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Log(what)
}
