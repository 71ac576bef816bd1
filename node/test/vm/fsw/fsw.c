// SPDX-License-Identifier: GPL-2.0
/*
 * fsw: a NIC with SR-IOV and an embedded switch, for tests.
 *
 * It binds to the PFs and VFs of QEMU's igb (Intel 82576) and takes them for their PCI functions alone: no register of
 * theirs is touched. What it makes of them:
 *  - on a PF an uplink (phys_port_name p0, phys_switch_id), joined to an interface "wireN", N being the PCI bus, that
 *    stands for the cable: a test moves it to where the other end is;
 *  - on a VF an interface; in switchdev mode each has a representor on the PF (pf0vfN), joined like a pair of veths;
 *  - on a PF a devlink instance whose eswitch mode can be set;
 *  - tc flower filters are accepted by all ports of the switch whatever they say (in_hw); software still does the work.
 */
#include <linux/etherdevice.h>
#include <linux/if_link.h>
#include <linux/module.h>
#include <linux/netdevice.h>
#include <linux/pci.h>
#include <net/devlink.h>
#include <net/flow_offload.h>
#include <net/pkt_cls.h>

#define MOST_VFS 7
#define FIRST_VF_PORT 100 /* devlink's index of the first representor */

struct fsw_pf;

struct fsw_face {
	struct net_device __rcu *peer;
	struct fsw_pf *pf;
};

struct fsw_vf {
	struct net_device *representor, *face;
	struct devlink_port port;
	struct ifla_vf_info info;
};

struct fsw_pf {
	struct pci_dev *pci;
	struct net_device *uplink, *wire;
	struct devlink_port port;
	enum devlink_eswitch_mode mode;
	int vfs;
	struct netdev_phys_item_id id;
	struct fsw_vf vf[MOST_VFS];
};

static LIST_HEAD(fsw_blocks);

static netdev_tx_t fsw_xmit(struct sk_buff *packet, struct net_device *face)
{
	struct fsw_face *own = netdev_priv(face);
	unsigned int length = packet->len;
	struct net_device *peer;

	rcu_read_lock();
	peer = rcu_dereference(own->peer);
	if (!peer || !(peer->flags & IFF_UP)) {
		kfree_skb(packet);
		face->stats.tx_dropped++;
	} else if (dev_forward_skb(peer, packet) == NET_RX_SUCCESS) {
		face->stats.tx_packets++;
		face->stats.tx_bytes += length;
		peer->stats.rx_packets++;
		peer->stats.rx_bytes += length;
	} else {
		face->stats.tx_dropped++;
	}
	rcu_read_unlock();
	return NETDEV_TX_OK;
}

static int fsw_open(struct net_device *face)
{
	netif_carrier_on(face);
	netif_tx_start_all_queues(face);
	return 0;
}

static int fsw_stop(struct net_device *face)
{
	netif_tx_stop_all_queues(face);
	netif_carrier_off(face);
	return 0;
}

static struct fsw_vf *fsw_vf_of(struct net_device *uplink, int vf)
{
	struct fsw_face *own = netdev_priv(uplink);

	return vf >= 0 && vf < own->pf->vfs ? &own->pf->vf[vf] : NULL;
}

static int fsw_get_vf_config(struct net_device *uplink, int index, struct ifla_vf_info *info)
{
	struct fsw_vf *vf = fsw_vf_of(uplink, index);

	if (!vf)
		return -EINVAL;
	*info = vf->info;
	info->vf = index;
	return 0;
}

#define FSW_SET_VF(name, type, keep) \
	static int fsw_set_vf_##name(struct net_device *uplink, int index, type value) \
	{ \
		struct fsw_vf *vf = fsw_vf_of(uplink, index); \
		if (!vf) \
			return -EINVAL; \
		keep; \
		return 0; \
	}
FSW_SET_VF(mac, u8 *, ether_addr_copy(vf->info.mac, value))
FSW_SET_VF(trust, bool, vf->info.trusted = value)
FSW_SET_VF(spoofchk, bool, vf->info.spoofchk = value)

static int fsw_flower(enum tc_setup_type type, void *data, void *private)
{
	struct flow_cls_offload *filter = data;

	if (type != TC_SETUP_CLSFLOWER || !tc_can_offload(private))
		return -EOPNOTSUPP;
	switch (filter->command) {
	case FLOW_CLS_REPLACE:
	case FLOW_CLS_DESTROY:
	case FLOW_CLS_STATS: /* software has counted already */
		return 0;
	default:
		return -EOPNOTSUPP;
	}
}

static int fsw_setup_tc(struct net_device *face, enum tc_setup_type type, void *data)
{
	if (type != TC_SETUP_BLOCK)
		return -EOPNOTSUPP;
	return flow_block_cb_setup_simple(data, &fsw_blocks, fsw_flower, face, face, true);
}

#define FSW_OPERATIONS .ndo_open = fsw_open, .ndo_stop = fsw_stop, .ndo_start_xmit = fsw_xmit, \
	.ndo_set_mac_address = eth_mac_addr, .ndo_validate_addr = eth_validate_addr

/* VFs and the wire: no port of the switch, so they take no filters. */
static const struct net_device_ops fsw_face_operations = { FSW_OPERATIONS };
static const struct net_device_ops fsw_representor_operations = { FSW_OPERATIONS, .ndo_setup_tc = fsw_setup_tc };
static const struct net_device_ops fsw_uplink_operations = {
	FSW_OPERATIONS,
	.ndo_setup_tc = fsw_setup_tc,
	.ndo_get_vf_config = fsw_get_vf_config,
	.ndo_set_vf_mac = fsw_set_vf_mac,
	.ndo_set_vf_trust = fsw_set_vf_trust,
	.ndo_set_vf_spoofchk = fsw_set_vf_spoofchk,
};

static struct net_device *fsw_make(struct fsw_pf *pf, struct device *parent, struct devlink_port *port, const char *name,
				   const struct net_device_ops *operations)
{
	struct net_device *face = alloc_netdev(sizeof(struct fsw_face), name, NET_NAME_ENUM, ether_setup);
	struct fsw_face *own;

	if (!face)
		return NULL;
	own = netdev_priv(face);
	own->pf = pf;
	face->netdev_ops = operations;
	face->min_mtu = 68;
	face->max_mtu = 9978;
	face->features |= NETIF_F_SG | NETIF_F_FRAGLIST | NETIF_F_HW_CSUM | NETIF_F_ALL_TSO | NETIF_F_HIGHDMA;
	if (operations->ndo_setup_tc)
		face->features |= NETIF_F_HW_TC;
	face->hw_features = face->features;
	face->priv_flags |= IFF_LIVE_ADDR_CHANGE;
	face->priv_flags &= ~IFF_TX_SKB_SHARING;
	eth_hw_addr_random(face);
	if (parent)
		SET_NETDEV_DEV(face, parent);
	if (port)
		SET_NETDEV_DEVLINK_PORT(face, port);
	netif_carrier_off(face);
	if (register_netdev(face)) {
		free_netdev(face);
		return NULL;
	}
	return face;
}

static void fsw_end(struct net_device *face)
{
	if (!face)
		return;
	unregister_netdev(face);
	free_netdev(face);
}

/* fsw_join two interfaces; with apart they send nowhere. Either may be missing. */
static void fsw_join(struct net_device *one, struct net_device *other, bool apart)
{
	if (one)
		rcu_assign_pointer(((struct fsw_face *)netdev_priv(one))->peer, apart ? NULL : other);
	if (other)
		rcu_assign_pointer(((struct fsw_face *)netdev_priv(other))->peer, apart ? NULL : one);
	synchronize_net();
}

static void fsw_end_representors(struct fsw_pf *pf)
{
	int index;

	for (index = 0; index < MOST_VFS; index++) {
		struct fsw_vf *vf = &pf->vf[index];

		if (!vf->representor)
			continue;
		fsw_join(vf->representor, vf->face, true);
		fsw_end(vf->representor);
		vf->representor = NULL;
		devl_port_unregister(&vf->port);
	}
}

static int fsw_make_representors(struct fsw_pf *pf)
{
	int index, error;

	for (index = 0; index < pf->vfs; index++) {
		struct devlink_port_attrs attributes = { .switch_id = pf->id };
		struct fsw_vf *vf = &pf->vf[index];

		if (vf->representor)
			continue;
		memset(&vf->port, 0, sizeof(vf->port));
		devlink_port_attrs_set(&vf->port, &attributes);
		devlink_port_attrs_pci_vf_set(&vf->port, 0, PCI_FUNC(pf->pci->devfn), index, false);
		error = devl_port_register(priv_to_devlink(pf), &vf->port, FIRST_VF_PORT + index);
		if (error)
			return error;
		vf->representor = fsw_make(pf, &pf->pci->dev, &vf->port, "eth%d", &fsw_representor_operations);
		if (!vf->representor) {
			devl_port_unregister(&vf->port);
			return -ENOMEM;
		}
		if (vf->face)
			fsw_join(vf->representor, vf->face, false);
	}
	return 0;
}

static int fsw_mode_get(struct devlink *devlink, u16 *mode)
{
	*mode = ((struct fsw_pf *)devlink_priv(devlink))->mode;
	return 0;
}

static int fsw_mode_set(struct devlink *devlink, u16 mode, struct netlink_ext_ack *ack)
{
	struct fsw_pf *pf = devlink_priv(devlink);

	if (mode != DEVLINK_ESWITCH_MODE_LEGACY && mode != DEVLINK_ESWITCH_MODE_SWITCHDEV)
		return -EOPNOTSUPP;
	if (mode == pf->mode)
		return 0;
	pf->mode = mode;
	if (mode == DEVLINK_ESWITCH_MODE_SWITCHDEV)
		return fsw_make_representors(pf);
	fsw_end_representors(pf);
	return 0;
}

static const struct devlink_ops fsw_devlink = { .eswitch_mode_get = fsw_mode_get, .eswitch_mode_set = fsw_mode_set };

static int fsw_sriov_configure(struct pci_dev *pci, int vfs)
{
	struct fsw_pf *pf = pci_get_drvdata(pci);
	struct devlink *devlink = priv_to_devlink(pf);
	int index, error = 0;

	if (vfs > MOST_VFS)
		return -EINVAL;
	if (!vfs)
		pci_disable_sriov(pci);
	devl_lock(devlink);
	if (!vfs)
		fsw_end_representors(pf);
	pf->vfs = vfs;
	for (index = 0; index < vfs; index++)
		memset(&pf->vf[index].info, 0, sizeof(pf->vf[index].info));
	if (pf->mode == DEVLINK_ESWITCH_MODE_SWITCHDEV)
		error = fsw_make_representors(pf);
	devl_unlock(devlink);
	if (!error && vfs)
		error = pci_enable_sriov(pci, vfs);
	return error ? error : vfs;
}

static int fsw_probe_vf(struct pci_dev *pci)
{
	struct fsw_pf *pf = pci_get_drvdata(pci_physfn(pci));
	int index = pci_iov_vf_id(pci);
	struct net_device *face;

	if (!pf || index < 0 || index >= MOST_VFS)
		return -ENODEV;
	face = fsw_make(pf, &pci->dev, NULL, "eth%d", &fsw_face_operations);
	if (!face)
		return -ENOMEM;
	pci_set_drvdata(pci, face);
	pf->vf[index].face = face;
	if (pf->vf[index].representor)
		fsw_join(face, pf->vf[index].representor, false);
	return 0;
}

static int fsw_probe_pf(struct pci_dev *pci, struct fsw_pf *pf)
{
	struct devlink_port_attrs attributes = { .flavour = DEVLINK_PORT_FLAVOUR_PHYSICAL };
	char name[IFNAMSIZ];
	int error;

	pf->pci = pci;
	pf->mode = DEVLINK_ESWITCH_MODE_LEGACY;
	pf->id = (struct netdev_phys_item_id){ .id_len = 8, .id = { 0x0f, [6] = pci->bus->number, [7] = pci->devfn } };
	pci_set_drvdata(pci, pf);
	attributes.switch_id = pf->id;
	devlink_port_attrs_set(&pf->port, &attributes);
	error = devl_port_register(priv_to_devlink(pf), &pf->port, 0);
	if (error)
		return error;
	pf->uplink = fsw_make(pf, &pci->dev, &pf->port, "eth%d", &fsw_uplink_operations);
	snprintf(name, sizeof(name), "wire%u", pci->bus->number);
	pf->wire = fsw_make(NULL, NULL, NULL, name, &fsw_face_operations);
	if (pf->uplink && pf->wire) {
		fsw_join(pf->uplink, pf->wire, false);
		return 0;
	}
	fsw_end(pf->wire);
	fsw_end(pf->uplink);
	devl_port_unregister(&pf->port);
	return -ENOMEM;
}

static int fsw_probe(struct pci_dev *pci, const struct pci_device_id *id)
{
	struct devlink *devlink;
	int error;

	if (pci->is_virtfn)
		return fsw_probe_vf(pci);
	devlink = devlink_alloc(&fsw_devlink, sizeof(struct fsw_pf), &pci->dev);
	if (!devlink)
		return -ENOMEM;
	devl_lock(devlink);
	error = fsw_probe_pf(pci, devlink_priv(devlink));
	if (!error)
		devl_register(devlink);
	devl_unlock(devlink);
	if (error)
		devlink_free(devlink);
	return error;
}

static void fsw_remove(struct pci_dev *pci)
{
	struct fsw_pf *pf = pci_get_drvdata(pci);
	struct devlink *devlink;

	if (pci->is_virtfn) {
		struct net_device *face = pci_get_drvdata(pci);
		struct fsw_vf *vf = &((struct fsw_pf *)pci_get_drvdata(pci_physfn(pci)))->vf[pci_iov_vf_id(pci)];

		fsw_join(face, vf->representor, true);
		vf->face = NULL;
		fsw_end(face);
		return;
	}
	devlink = priv_to_devlink(pf);
	pci_disable_sriov(pci);
	devl_lock(devlink);
	devl_unregister(devlink);
	fsw_end_representors(pf);
	fsw_join(pf->uplink, pf->wire, true);
	fsw_end(pf->wire);
	fsw_end(pf->uplink);
	devl_port_unregister(&pf->port);
	devl_unlock(devlink);
	devlink_free(devlink);
}

static const struct pci_device_id fsw_ids[] = { { PCI_DEVICE(0x8086, 0x10c9) }, { PCI_DEVICE(0x8086, 0x10ca) }, {} };
static struct pci_driver fsw_driver = {
	.name = "fsw",
	.id_table = fsw_ids,
	.probe = fsw_probe,
	.remove = fsw_remove,
	.sriov_configure = fsw_sriov_configure,
};
module_pci_driver(fsw_driver);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("a NIC with SR-IOV and an embedded switch, for tests");
