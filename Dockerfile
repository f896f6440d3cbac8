# The daemon for linux/amd64 and linux/arm64: one static binary, the public certificate authorities (for an API
# server that none of the cluster's own has signed), and nothing else.
#
#   docker buildx build --platform linux/amd64,linux/arm64 .
#
# Both are compiled on the machine's own platform, so there is no emulation. The frontend is BuildKit's own: a
# `syntax` line would fetch another image.
FROM --platform=$BUILDPLATFORM rust:1.95.0-slim-bookworm@sha256:d7482085ff5b415f84dba5647ae71606650bdef00db7aeb69f4b3d170c3e4082 AS build
WORKDIR /windlass
ARG BUILDARCH TARGETARCH
# For the C in ring, see .ci/dist. The image has the compiler for its own platform. The one for the other comes from the
# archive that the image was made from, which its list of sources names: so the digest above pins it, too. Such an archive is
# old, and its signature may have expired.
RUN case $BUILDARCH-$TARGETARCH in \
      amd64-arm64) set -- gcc-aarch64-linux-gnu libc6-dev-arm64-cross ;; \
      arm64-amd64) set -- gcc-x86-64-linux-gnu libc6-dev-amd64-cross ;; \
      *) exit 0 ;; \
    esac; \
    sed --in-place --regexp-extended \
      -e '/^URIs:/d' -e 's|^# (http://snapshot\.debian\.org/.*)$|URIs: \1|' /etc/apt/sources.list.d/debian.sources && \
    grep --quiet '^URIs: http://snapshot' /etc/apt/sources.list.d/debian.sources && \
    apt-get --option Acquire::Check-Valid-Until=false update && \
    apt-get install --yes --no-install-recommends "$@"
COPY . .
# For `--version`: the repository is not in the context. With it the bytes are those of the release.
ARG WINDLASS_COMMIT
# Both platforms are built at the same time, and cargo's lock is outside of the registry: in one that they shared they
# would unpack the same crates over each other. So each has its own, and fetches them for itself.
RUN --mount=type=cache,target=/usr/local/cargo/registry,id=windlass-crates-$TARGETARCH \
    --mount=type=cache,target=/windlass/target,id=windlass-$TARGETARCH \
    case $TARGETARCH in \
      amd64) .ci/dist x86_64-unknown-linux-musl /programs ;; \
      arm64) .ci/dist aarch64-unknown-linux-musl /programs ;; \
      *) echo "not built for $TARGETARCH" >&2; exit 1 ;; \
    esac

# The parts of a release besides the image: `docker buildx build --target programs --output dist .`
FROM scratch AS programs
COPY --from=build /programs/ /

FROM scratch
LABEL org.opencontainers.image.title="Windlass" \
      org.opencontainers.image.description="The Deployment, ReplicaSet and ReplicationController controllers of Kubernetes as one small daemon" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.source="https://github.com/windlass-rs/windlass"
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /programs/windlass /
# A number, so that the kubelet can tell that it is not root: `runAsNonRoot`.
USER 65532:65532
EXPOSE 10257
ENTRYPOINT ["/windlass"]
