//! The rows of Services, budgets, quotas and nodes.

use super::rows::{Row, rows};

rows! {
    OF_SERVICES:
    SLICE_LEFT_OVER {
        "A Service that loses its selector, or becomes an ExternalName, keeps its EndpointSlices (kubernetes#118376)",
        "The same; with `--delete-leftover-endpoint-slices`, which `--test-bed` sets, they are deleted",
        "They point to pods of the past"
    }
    SLICE_NAMES {
        "The API server draws the suffix of an EndpointSlice's name, and a cache that lags or a lost reply leaves duplicates (kubernetes#92928)",
        "The name follows from the Service, the address type and the ports. `generateName` is set beside the name",
        "A creation that is repeated meets the slice of the first attempt"
    }
    SLICE_LOST_NODE {
        "A pod whose node does not exist fails the sync of its Service, with an event at each retry (kubernetes#107927)",
        "It is left out with one event, and has its endpoint once the node exists",
        "One pod holds up no other"
    }
    SLICE_LABELS {
        "A label of its own that an EndpointSlice loses stays lost",
        "It is set again",
        "A slice without the label of headless Services is taken for one of another kind"
    }
    SLICE_WAKES {
        "A pod that fails without having been ready keeps its endpoint until its Service is synced for another reason, and each write to a pod that is being deleted syncs its Services",
        "The end of a pod ends its endpoint; a write to a pod that is being deleted means nothing",
        "Endpoints follow the pods, and syncs are few"
    }
    SLICE_GATHERED {
        "Without `--endpointslice-updates-batch-period` each change of a pod may write its EndpointSlices",
        "The first change is written at once, and while pods keep changing the slices are written at most ten times a second",
        "Each write of a slice goes to every node"
    }
    SLICE_EVENTS {
        "Why hints by CPUs are off is an event of each sync; for a Service of two families some are told for the first alone; a conflict is a `FailedToUpdateEndpointSlices`",
        "Once each time the reason is another, for each family; a conflict is tried again without an event",
        "An event tells of a change"
    }
    SLICE_ZONES {
        "A node that is in another zone by now changes EndpointSlices at the next sync of their Service",
        "At once",
        "Traffic goes where the zone says"
    }
    SLICE_OWNER {
        "An EndpointSlice with any owner reference to its Service is kept",
        "One that the Service does not control any more is replaced by another",
        "Owners of a slice that somebody edited are as they should be again"
    }
    SLICE_RETRIES {
        "A refused write of EndpointSlices is tried again after 1 s, and then up to 1,000 s later; the refused pods of a Job after 1 s, and then up to a minute later",
        "After 5 ms, and then up to a minute later, as of all objects",
        "Endpoints are right within a minute after the cause is gone, and a Job has its pods as soon as those of other workloads"
    }
    PDB_ALL_BUDGETS {
        "Of two PodDisruptionBudgets of a pod one is kept up to date, with an event, and one that a pod leaves by its labels is not",
        "All budgets that select the pod now or did before are. The event `MultiplePodDisruptionBudgets` is not there",
        "The API server reads the status of each of them"
    }
    PDB_SCALED {
        "A workload that is scaled changes the status of its PodDisruptionBudget once its pods change",
        "At once",
        "A scale-up that waits must not let pods be evicted by the old number"
    }
    PDB_VANISHED {
        "A pod whose workload has just gone stops all evictions of its PodDisruptionBudget (kubernetes#88535, kubernetes#78427)",
        "For ten seconds it counts as unmanaged",
        "The pod mostly goes, too; and the caches may show it before its workload"
    }
    PDB_UNMANAGED {
        "Healthy pods without a controller are counted against the scale of the others, so that too many are evicted",
        "They are in `currentHealthy`, and not in what is allowed, unless `minAvailable` is a number",
        "Bare pods do not do the work of managed ones"
    }
    PDB_EVENTS {
        "The events `NoPods`, `UnmanagedPods` and `CalculateExpectedPodCountFailed` come at each sync (kubernetes#104487), and `NotDeleted` names the namespace twice",
        "Once each time their state begins; `NotDeleted` names the PodDisruptionBudget",
        "An event tells of a change"
    }
    PDB_RETRIES {
        "A PodDisruptionBudget whose sync failed waits for the next change of a pod",
        "It is tried again with backoff",
        "A missing right or a webhook that failed is over without a change of a pod"
    }
    PDB_SCALES {
        "While the scale of a custom workload cannot be read, a PodDisruptionBudget allows no eviction; while it can be, a change of it is seen once a pod changes",
        "While the API server does not answer, the last scale counts and the number that is allowed only falls; a refusal allows none. A scale is read again every half minute",
        "An aggregated API that restarts stops no drain, and none lets too many pods go"
    }
    PDB_ENTRIES {
        "An entry of `disruptedPods` leaves when the cache shows no such live pod",
        "When the cache shows none and is known to be no older than the entry. A pod that has the name next does not keep it",
        "Shown later, the pod would count although it is on its way out, and one more would be evicted"
    }
    QUOTA_MONITORS {
        "The quota controller watches every resource that can be listed, and counts nothing before all of them are: one broken CustomResourceDefinition or webhook stops all quotas (kubernetes#133737)",
        "It watches the metadata of what quotas name, if the garbage collector does not already. A resource that cannot be listed keeps its numbers, and an event of the quota and `/debug/resourcequotas` name it",
        "Freed quota can be used, and the daemon stays small"
    }
    QUOTA_CHARGES {
        "A count on a cache that lags takes back what the API server has just charged, until the next object of the namespace is deleted or 5 minutes have passed; a charge whose object was never created stays as long",
        "A charge counts until its object is seen, or for 5 seconds from when the cache of the objects is as new as the charge",
        "No namespace gets more than its quota, nor less for long"
    }
    QUOTA_QUEUES {
        "Quotas without a status have a queue of their own, `resourcequota_priority`",
        "There is one queue, `resourcequota_primary`: a count is one pass over the namespace in memory",
        "No quota waits behind others for long"
    }
    QUOTA_OVERDUE {
        "A pod that outstays its deletion by another grace period is counted until a quota is counted for another reason",
        "Its quota is counted when that time has passed",
        "A lost node does not keep quota"
    }
    QUOTA_DEVICES {
        "Quotas count the devices of ResourceClaims",
        "Only the number of ResourceClaims is counted; names that end in `deviceclass.resource.k8s.io/devices` get no number, so that the API server refuses such claims",
        "ResourceClaims are not cached yet"
    }
    ENDPOINTS_LEFT_OVER {
        "The deletion of a Service, and each start, delete the Endpoints of that name by name, also those that a user has just written (kubernetes#104062)",
        "Only those with the label `endpoints.kubernetes.io/managed-by: endpoint-controller` are deleted, by UID and resourceVersion, once the API server itself has no such Service, and not within 30 seconds after others have written them",
        "What a user has written stays"
    }
    ENDPOINTS_ORDER {
        "Subsets and ports of Endpoints are in the order of a hash, and another order is written again after a change of the hash (kubernetes#129652); above 1,000 addresses each sync writes",
        "In the order of name, protocol and number; they are compared as sets, with the annotation `over-capacity` as it should be",
        "A takeover, and a sync without a change, write nothing"
    }
    ENDPOINTS_WAKES {
        "Endpoints that others change stay so until their Service is synced for another reason",
        "They are as they should be again after a second or two",
        "Clients reach the pods of the Service"
    }
    ENDPOINTS_GATHERED {
        "Without `--endpoint-updates-batch-period` each change of a pod may write the Endpoints of its Services",
        "The first change is written at once, and while pods keep changing they are written at most ten times a second",
        "Each write has all addresses"
    }
    MIRROR_OWNER {
        "A slice that mirrors Endpoints is created under a random name, and one that lost its owner reference stays without",
        "The name follows from the Endpoints, the address type and the ports, and the owner reference is set again",
        "A lost reply leaves no second slice, and the garbage collector finds each"
    }
    MIRROR_GENERATE_NAME {
        "An update of a slice that mirrors Endpoints takes its `generateName` off",
        "It stays",
        "A patch names only what changes"
    }
    NODE_EVICTION {
        "The taint eviction controller tries a deletion five times within 50 ms, by name, and then forgets it (kubernetes#140639, kubernetes#141568)",
        "By UID, and for ever with backoff",
        "No pod stays on a dead node, and no new pod of a StatefulSet goes in place of the old one"
    }
    NODE_SECONDS {
        "A restart begins the `tolerationSeconds` of all pods anew",
        "They count from the `timeAdded` of the taint, which a taint that replaces it takes over, and not from before the pod was on the node",
        "A controller that crashes again and again evicts all the same"
    }
    NODE_SHORTER {
        "A timer that runs is not moved, not even by a shorter toleration or a second taint",
        "The eviction follows the taints and tolerations as they are",
        "What a user writes counts"
    }
    NODE_LIVE {
        "A cache that lags evicts pods from a node that has recovered (kubernetes#119862), and reports nodes as silent",
        "The node is read before an eviction, and its Lease before it is reported as silent",
        "A broken watch looks like a broken node"
    }
    NODE_PODS {
        "The pods of a node are marked as not ready when the controller sees the node fail; what a crash leaves undone stays undone",
        "All pods that became ready before the node failed, whenever that is seen; once each while the kubelet reports, which may write them back",
        "No Service sends requests to a dead node"
    }
    NODE_EVENTS {
        "An event `RegisteredNode` for each node at each start",
        "For nodes that are new",
        "A takeover writes nothing"
    }
}
