/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The sockets API of SCTP (RFC 6458) for programs that link with libswiftwater:
 *
 *     cc $(pkg-config --cflags swiftwater) program.c $(pkg-config --libs swiftwater)
 *
 * Numbers and layouts are Linux's, so that a program compiled with this header also runs on the kernel's SCTP, and one
 * compiled with another header of Linux's also runs here. Options of extensions that Swiftwater does not have (AUTH,
 * ASCONF, RE-CONFIG, PR-SCTP, I-DATA) answer as Linux does with the extension off.
 */
#ifndef SWIFTWATER_NETINET_SCTP_H
#define SWIFTWATER_NETINET_SCTP_H

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

/* <linux/sctp.h> says the same as the part up to the functions: whichever comes first is used. */
#ifndef _SCTP_H
#define _SCTP_H

#ifdef __cplusplus
#define SW_TAIL(type, name) type name[1]
#else
#define SW_TAIL(type, name) type name[]
#endif
#define SW_PACKED __attribute__((packed, aligned(4)))

/* ---- associations ------------------------------------------------------------------------ */

typedef int32_t sctp_assoc_t;

#define SCTP_FUTURE_ASSOC 0  /* those that are yet to come */
#define SCTP_CURRENT_ASSOC 1 /* those that are there */
#define SCTP_ALL_ASSOC 2     /* both */

/* ---- socket options, level IPPROTO_SCTP -------------------------------------------------- */

#define SCTP_RTOINFO 0                /* struct sctp_rtoinfo */
#define SCTP_ASSOCINFO 1              /* struct sctp_assocparams */
#define SCTP_INITMSG 2                /* struct sctp_initmsg */
#define SCTP_NODELAY 3                /* int */
#define SCTP_AUTOCLOSE 4              /* int, seconds */
#define SCTP_SET_PEER_PRIMARY_ADDR 5  /* struct sctp_setpeerprim */
#define SCTP_PRIMARY_ADDR 6           /* struct sctp_prim */
#define SCTP_ADAPTATION_LAYER 7       /* struct sctp_setadaptation */
#define SCTP_DISABLE_FRAGMENTS 8      /* int */
#define SCTP_PEER_ADDR_PARAMS 9       /* struct sctp_paddrparams */
#define SCTP_DEFAULT_SEND_PARAM 10    /* struct sctp_sndrcvinfo */
#define SCTP_EVENTS 11                /* struct sctp_event_subscribe */
#define SCTP_I_WANT_MAPPED_V4_ADDR 12 /* int */
#define SCTP_MAXSEG 13                /* struct sctp_assoc_value, or int */
#define SCTP_STATUS 14                /* struct sctp_status, to read */
#define SCTP_GET_PEER_ADDR_INFO 15    /* struct sctp_paddrinfo, to read */
#define SCTP_DELAYED_SACK 16          /* struct sctp_sack_info */
#define SCTP_DELAYED_ACK SCTP_DELAYED_SACK
#define SCTP_DELAYED_ACK_TIME SCTP_DELAYED_SACK
#define SCTP_CONTEXT 17                /* struct sctp_assoc_value */
#define SCTP_FRAGMENT_INTERLEAVE 18    /* int */
#define SCTP_PARTIAL_DELIVERY_POINT 19 /* uint32_t, bytes */
#define SCTP_MAX_BURST 20              /* struct sctp_assoc_value */
#define SCTP_AUTH_CHUNK 21             /* struct sctp_authchunk */
#define SCTP_HMAC_IDENT 22             /* struct sctp_hmacalgo */
#define SCTP_AUTH_KEY 23               /* struct sctp_authkey */
#define SCTP_AUTH_ACTIVE_KEY 24        /* struct sctp_authkeyid */
#define SCTP_AUTH_DELETE_KEY 25        /* struct sctp_authkeyid */
#define SCTP_PEER_AUTH_CHUNKS 26       /* struct sctp_authchunks, to read */
#define SCTP_LOCAL_AUTH_CHUNKS 27      /* struct sctp_authchunks, to read */
#define SCTP_GET_ASSOC_NUMBER 28       /* uint32_t, to read */
#define SCTP_GET_ASSOC_ID_LIST 29      /* struct sctp_assoc_ids, to read */
#define SCTP_AUTO_ASCONF 30            /* int */
#define SCTP_PEER_ADDR_THLDS 31        /* struct sctp_paddrthlds */
#define SCTP_RECVRCVINFO 32            /* int */
#define SCTP_RECVNXTINFO 33            /* int */
#define SCTP_DEFAULT_SNDINFO 34        /* struct sctp_sndinfo */
#define SCTP_AUTH_DEACTIVATE_KEY 35    /* struct sctp_authkeyid */
#define SCTP_REUSE_PORT 36             /* int */
#define SCTP_PEER_ADDR_THLDS_V2 37     /* struct sctp_paddrthlds_v2 */

/* Options and ancillary data behind the functions below. */
#define SCTP_SOCKOPT_BINDX_ADD 100
#define SCTP_SOCKOPT_BINDX_REM 101
#define SCTP_SOCKOPT_PEELOFF 102
#define SCTP_SOCKOPT_CONNECTX_OLD 107
#define SCTP_GET_PEER_ADDRS 108
#define SCTP_GET_LOCAL_ADDRS 109
#define SCTP_SOCKOPT_CONNECTX 110
#define SCTP_SOCKOPT_CONNECTX3 111
#define SCTP_SOCKOPT_PEELOFF_FLAGS 122

#define SCTP_GET_ASSOC_STATS 112         /* struct sctp_assoc_stats, to read */
#define SCTP_PR_SUPPORTED 113            /* struct sctp_assoc_value */
#define SCTP_DEFAULT_PRINFO 114          /* struct sctp_default_prinfo */
#define SCTP_PR_ASSOC_STATUS 115         /* struct sctp_prstatus, to read */
#define SCTP_PR_STREAM_STATUS 116        /* struct sctp_prstatus, to read */
#define SCTP_RECONFIG_SUPPORTED 117      /* struct sctp_assoc_value */
#define SCTP_ENABLE_STREAM_RESET 118     /* struct sctp_assoc_value */
#define SCTP_RESET_STREAMS 119           /* struct sctp_reset_streams */
#define SCTP_RESET_ASSOC 120             /* sctp_assoc_t */
#define SCTP_ADD_STREAMS 121             /* struct sctp_add_streams */
#define SCTP_STREAM_SCHEDULER 123        /* struct sctp_assoc_value */
#define SCTP_STREAM_SCHEDULER_VALUE 124  /* struct sctp_stream_value */
#define SCTP_INTERLEAVING_SUPPORTED 125  /* struct sctp_assoc_value */
#define SCTP_SENDMSG_CONNECT 126         /* the kernel's own */
#define SCTP_EVENT 127                   /* struct sctp_event */
#define SCTP_ASCONF_SUPPORTED 128        /* struct sctp_assoc_value */
#define SCTP_AUTH_SUPPORTED 129          /* struct sctp_assoc_value */
#define SCTP_ECN_SUPPORTED 130           /* struct sctp_assoc_value */
#define SCTP_EXPOSE_POTENTIALLY_FAILED_STATE 131 /* struct sctp_assoc_value */
#define SCTP_EXPOSE_PF_STATE SCTP_EXPOSE_POTENTIALLY_FAILED_STATE
#define SCTP_REMOTE_UDP_ENCAPS_PORT 132  /* struct sctp_udpencaps */
#define SCTP_PLPMTUD_PROBE_INTERVAL 133  /* struct sctp_probeinterval */

/* ---- what goes with messages ------------------------------------------------------------- */

/* Flag from recvmsg: the record is a notification, a union sctp_notification. */
#define MSG_NOTIFICATION 0x8000

/* Types of ancillary data, level IPPROTO_SCTP. */
enum sctp_cmsg_type {
    SCTP_INIT = 0,
    SCTP_SNDRCV = 1,
    SCTP_SNDINFO = 2,
    SCTP_RCVINFO = 3,
    SCTP_NXTINFO = 4,
    SCTP_PRINFO = 5,
    SCTP_AUTHINFO = 6,
    SCTP_DSTADDRV4 = 7, /* struct in_addr */
    SCTP_DSTADDRV6 = 8, /* struct in6_addr */
};
typedef enum sctp_cmsg_type sctp_cmsg_t;
/* Programs ask the preprocessor whether these are there. */
#define SCTP_INIT SCTP_INIT
#define SCTP_SNDRCV SCTP_SNDRCV
#define SCTP_SNDINFO SCTP_SNDINFO
#define SCTP_RCVINFO SCTP_RCVINFO
#define SCTP_NXTINFO SCTP_NXTINFO
#define SCTP_PRINFO SCTP_PRINFO
#define SCTP_AUTHINFO SCTP_AUTHINFO
#define SCTP_DSTADDRV4 SCTP_DSTADDRV4
#define SCTP_DSTADDRV6 SCTP_DSTADDRV6

/* Flags of a message: sinfo_flags, snd_flags, rcv_flags, nxt_flags. */
enum sctp_sinfo_flags {
    SCTP_UNORDERED = 1 << 0,
    SCTP_ADDR_OVER = 1 << 1,         /* to the address that is named, not the primary one */
    SCTP_ABORT = 1 << 2,             /* ABORT, with the data as the reason */
    SCTP_SACK_IMMEDIATELY = 1 << 3,  /* RFC 7053 */
    SCTP_SENDALL = 1 << 6,           /* to every association of the socket */
    SCTP_PR_SCTP_ALL = 1 << 7,
    SCTP_NOTIFICATION = MSG_NOTIFICATION,
    SCTP_EOF = 0x200,                /* SHUTDOWN after what was sent */
};

struct sctp_initmsg {
    uint16_t sinit_num_ostreams;
    uint16_t sinit_max_instreams;
    uint16_t sinit_max_attempts;
    uint16_t sinit_max_init_timeo; /* milliseconds */
};

struct sctp_sndrcvinfo {
    uint16_t sinfo_stream;
    uint16_t sinfo_ssn;
    uint16_t sinfo_flags;
    uint32_t sinfo_ppid; /* four bytes as they travel */
    uint32_t sinfo_context;
    uint32_t sinfo_timetolive; /* milliseconds */
    uint32_t sinfo_tsn;
    uint32_t sinfo_cumtsn;
    sctp_assoc_t sinfo_assoc_id;
};

struct sctp_sndinfo {
    uint16_t snd_sid;
    uint16_t snd_flags;
    uint32_t snd_ppid;
    uint32_t snd_context;
    sctp_assoc_t snd_assoc_id;
};

struct sctp_rcvinfo {
    uint16_t rcv_sid;
    uint16_t rcv_ssn;
    uint16_t rcv_flags;
    uint32_t rcv_ppid;
    uint32_t rcv_tsn;
    uint32_t rcv_cumtsn;
    uint32_t rcv_context;
    sctp_assoc_t rcv_assoc_id;
};

struct sctp_nxtinfo {
    uint16_t nxt_sid;
    uint16_t nxt_flags;
    uint32_t nxt_ppid;
    uint32_t nxt_length;
    sctp_assoc_t nxt_assoc_id;
};

struct sctp_prinfo {
    uint16_t pr_policy;
    uint32_t pr_value;
};

struct sctp_authinfo {
    uint16_t auth_keynumber;
};

typedef union {
    uint8_t raw;
    struct sctp_initmsg init;
    struct sctp_sndrcvinfo sndrcv;
} sctp_cmsg_data_t;

/* Policies of RFC 3758 and RFC 7496. */
#define SCTP_PR_SCTP_NONE 0x0000
#define SCTP_PR_SCTP_TTL 0x0010
#define SCTP_PR_SCTP_RTX 0x0020
#define SCTP_PR_SCTP_PRIO 0x0030
#define SCTP_PR_SCTP_MAX SCTP_PR_SCTP_PRIO
#define SCTP_PR_SCTP_MASK 0x0030
#define SCTP_PR_POLICY(flags) ((flags) & SCTP_PR_SCTP_MASK)

/* ---- notifications ----------------------------------------------------------------------- */

enum sctp_sn_type {
    SCTP_SN_TYPE_BASE = 0x8000,
    SCTP_DATA_IO_EVENT = 0x8000,
    SCTP_ASSOC_CHANGE = 0x8001,
    SCTP_PEER_ADDR_CHANGE = 0x8002,
    SCTP_SEND_FAILED = 0x8003,
    SCTP_REMOTE_ERROR = 0x8004,
    SCTP_SHUTDOWN_EVENT = 0x8005,
    SCTP_PARTIAL_DELIVERY_EVENT = 0x8006,
    SCTP_ADAPTATION_INDICATION = 0x8007,
    SCTP_AUTHENTICATION_EVENT = 0x8008,
    SCTP_SENDER_DRY_EVENT = 0x8009,
    SCTP_STREAM_RESET_EVENT = 0x800a,
    SCTP_ASSOC_RESET_EVENT = 0x800b,
    SCTP_STREAM_CHANGE_EVENT = 0x800c,
    SCTP_SEND_FAILED_EVENT = 0x800d,
    SCTP_SN_TYPE_MAX = SCTP_SEND_FAILED_EVENT,
};
#define SCTP_DATA_IO_EVENT SCTP_DATA_IO_EVENT
#define SCTP_ASSOC_CHANGE SCTP_ASSOC_CHANGE
#define SCTP_PEER_ADDR_CHANGE SCTP_PEER_ADDR_CHANGE
#define SCTP_SEND_FAILED SCTP_SEND_FAILED
#define SCTP_REMOTE_ERROR SCTP_REMOTE_ERROR
#define SCTP_SHUTDOWN_EVENT SCTP_SHUTDOWN_EVENT
#define SCTP_PARTIAL_DELIVERY_EVENT SCTP_PARTIAL_DELIVERY_EVENT
#define SCTP_ADAPTATION_INDICATION SCTP_ADAPTATION_INDICATION
#define SCTP_AUTHENTICATION_INDICATION SCTP_AUTHENTICATION_EVENT
#define SCTP_SENDER_DRY_EVENT SCTP_SENDER_DRY_EVENT
#define SCTP_STREAM_RESET_EVENT SCTP_STREAM_RESET_EVENT
#define SCTP_ASSOC_RESET_EVENT SCTP_ASSOC_RESET_EVENT
#define SCTP_STREAM_CHANGE_EVENT SCTP_STREAM_CHANGE_EVENT
#define SCTP_SEND_FAILED_EVENT SCTP_SEND_FAILED_EVENT
#define SCTP_SN_TYPE_MAX SCTP_SN_TYPE_MAX

/* A flag each, which subscribes to what it names. */
struct sctp_event_subscribe {
    uint8_t sctp_data_io_event; /* struct sctp_sndrcvinfo beside each message */
    uint8_t sctp_association_event;
    uint8_t sctp_address_event;
    uint8_t sctp_send_failure_event;
    uint8_t sctp_peer_error_event;
    uint8_t sctp_shutdown_event;
    uint8_t sctp_partial_delivery_event;
    uint8_t sctp_adaptation_layer_event;
    uint8_t sctp_authentication_event;
    uint8_t sctp_sender_dry_event;
    uint8_t sctp_stream_reset_event;
    uint8_t sctp_assoc_reset_event;
    uint8_t sctp_stream_change_event;
    uint8_t sctp_send_failure_event_event;
};

/* One of them, for one association or for those to come. */
struct sctp_event {
    sctp_assoc_t se_assoc_id;
    uint16_t se_type;
    uint8_t se_on;
};

enum sctp_sac_state {
    SCTP_COMM_UP = 0,
    SCTP_COMM_LOST = 1,
    SCTP_RESTART = 2,
    SCTP_SHUTDOWN_COMP = 3,
    SCTP_CANT_STR_ASSOC = 4,
};

struct sctp_assoc_change {
    uint16_t sac_type;
    uint16_t sac_flags;
    uint32_t sac_length;
    uint16_t sac_state; /* enum sctp_sac_state */
    uint16_t sac_error; /* enum sctp_sn_error, or a cause as it came */
    uint16_t sac_outbound_streams;
    uint16_t sac_inbound_streams;
    sctp_assoc_t sac_assoc_id;
    SW_TAIL(uint8_t, sac_info);
};

enum sctp_spc_state {
    SCTP_ADDR_AVAILABLE = 0,
    SCTP_ADDR_UNREACHABLE = 1,
    SCTP_ADDR_REMOVED = 2,
    SCTP_ADDR_ADDED = 3,
    SCTP_ADDR_MADE_PRIM = 4,
    SCTP_ADDR_CONFIRMED = 5,
    SCTP_ADDR_POTENTIALLY_FAILED = 6,
};
#define SCTP_ADDR_PF SCTP_ADDR_POTENTIALLY_FAILED

struct sctp_paddr_change {
    uint16_t spc_type;
    uint16_t spc_flags;
    uint32_t spc_length;
    struct sockaddr_storage spc_aaddr;
    int spc_state; /* enum sctp_spc_state */
    int spc_error;
    sctp_assoc_t spc_assoc_id;
} SW_PACKED;

struct sctp_remote_error {
    uint16_t sre_type;
    uint16_t sre_flags;
    uint32_t sre_length;
    uint16_t sre_error; /* the cause, as it came: in network byte order */
    sctp_assoc_t sre_assoc_id;
    SW_TAIL(uint8_t, sre_data);
};

/* ssf_flags */
enum sctp_ssf_flags {
    SCTP_DATA_UNSENT = 0,
    SCTP_DATA_SENT = 1,
};

struct sctp_send_failed {
    uint16_t ssf_type;
    uint16_t ssf_flags;
    uint32_t ssf_length;
    uint32_t ssf_error;
    struct sctp_sndrcvinfo ssf_info;
    sctp_assoc_t ssf_assoc_id;
    SW_TAIL(uint8_t, ssf_data);
};

struct sctp_send_failed_event {
    uint16_t ssf_type;
    uint16_t ssf_flags;
    uint32_t ssf_length;
    uint32_t ssf_error;
    struct sctp_sndinfo ssfe_info;
    sctp_assoc_t ssf_assoc_id;
    SW_TAIL(uint8_t, ssf_data);
};

struct sctp_shutdown_event {
    uint16_t sse_type;
    uint16_t sse_flags;
    uint32_t sse_length;
    sctp_assoc_t sse_assoc_id;
};

struct sctp_adaptation_event {
    uint16_t sai_type;
    uint16_t sai_flags;
    uint32_t sai_length;
    uint32_t sai_adaptation_ind;
    sctp_assoc_t sai_assoc_id;
};

enum { SCTP_PARTIAL_DELIVERY_ABORTED = 0 };

struct sctp_pdapi_event {
    uint16_t pdapi_type;
    uint16_t pdapi_flags;
    uint32_t pdapi_length;
    uint32_t pdapi_indication;
    sctp_assoc_t pdapi_assoc_id;
    uint32_t pdapi_stream;
    uint32_t pdapi_seq;
};

enum {
    SCTP_AUTH_NEW_KEY = 0,
    SCTP_AUTH_FREE_KEY = 1,
    SCTP_AUTH_NO_AUTH = 2,
};
#define SCTP_AUTH_NEWKEY SCTP_AUTH_NEW_KEY

struct sctp_authkey_event {
    uint16_t auth_type;
    uint16_t auth_flags;
    uint32_t auth_length;
    uint16_t auth_keynumber;
    uint16_t auth_altkeynumber;
    uint32_t auth_indication;
    sctp_assoc_t auth_assoc_id;
};

struct sctp_sender_dry_event {
    uint16_t sender_dry_type;
    uint16_t sender_dry_flags;
    uint32_t sender_dry_length;
    sctp_assoc_t sender_dry_assoc_id;
};

#define SCTP_STREAM_RESET_INCOMING_SSN 0x0001
#define SCTP_STREAM_RESET_OUTGOING_SSN 0x0002
#define SCTP_STREAM_RESET_DENIED 0x0004
#define SCTP_STREAM_RESET_FAILED 0x0008

struct sctp_stream_reset_event {
    uint16_t strreset_type;
    uint16_t strreset_flags;
    uint32_t strreset_length;
    sctp_assoc_t strreset_assoc_id;
    SW_TAIL(uint16_t, strreset_stream_list);
};

#define SCTP_ASSOC_RESET_DENIED 0x0004
#define SCTP_ASSOC_RESET_FAILED 0x0008

struct sctp_assoc_reset_event {
    uint16_t assocreset_type;
    uint16_t assocreset_flags;
    uint32_t assocreset_length;
    sctp_assoc_t assocreset_assoc_id;
    uint32_t assocreset_local_tsn;
    uint32_t assocreset_remote_tsn;
};

#define SCTP_ASSOC_CHANGE_DENIED 0x0004
#define SCTP_ASSOC_CHANGE_FAILED 0x0008
#define SCTP_STREAM_CHANGE_DENIED SCTP_ASSOC_CHANGE_DENIED
#define SCTP_STREAM_CHANGE_FAILED SCTP_ASSOC_CHANGE_FAILED

struct sctp_stream_change_event {
    uint16_t strchange_type;
    uint16_t strchange_flags;
    uint32_t strchange_length;
    sctp_assoc_t strchange_assoc_id;
    uint16_t strchange_instrms;
    uint16_t strchange_outstrms;
};

/* Any notification: sn_header.sn_type says which. */
union sctp_notification {
    struct {
        uint16_t sn_type;
        uint16_t sn_flags;
        uint32_t sn_length;
    } sn_header;
    struct sctp_assoc_change sn_assoc_change;
    struct sctp_paddr_change sn_paddr_change;
    struct sctp_remote_error sn_remote_error;
    struct sctp_send_failed sn_send_failed;
    struct sctp_shutdown_event sn_shutdown_event;
    struct sctp_adaptation_event sn_adaptation_event;
    struct sctp_pdapi_event sn_pdapi_event;
    struct sctp_authkey_event sn_authkey_event;
    struct sctp_sender_dry_event sn_sender_dry_event;
    struct sctp_stream_reset_event sn_strreset_event;
    struct sctp_assoc_reset_event sn_assocreset_event;
    struct sctp_stream_change_event sn_strchange_event;
    struct sctp_send_failed_event sn_send_failed_event;
};

typedef enum sctp_sn_error {
    SCTP_FAILED_THRESHOLD = 0,
    SCTP_RECEIVED_SACK = 1,
    SCTP_HEARTBEAT_SUCCESS = 2,
    SCTP_RESPONSE_TO_USER_REQ = 3,
    SCTP_INTERNAL_ERROR = 4,
    SCTP_SHUTDOWN_GUARD_EXPIRES = 5,
    SCTP_PEER_FAULTY = 6,
} sctp_sn_error_t;

/* ---- values of options ------------------------------------------------------------------- */

struct sctp_rtoinfo { /* milliseconds */
    sctp_assoc_t srto_assoc_id;
    uint32_t srto_initial;
    uint32_t srto_max;
    uint32_t srto_min;
};

struct sctp_assocparams {
    sctp_assoc_t sasoc_assoc_id;
    uint16_t sasoc_asocmaxrxt;
    uint16_t sasoc_number_peer_destinations;
    uint32_t sasoc_peer_rwnd;
    uint32_t sasoc_local_rwnd;
    uint32_t sasoc_cookie_life; /* milliseconds */
};

struct sctp_setpeerprim {
    sctp_assoc_t sspp_assoc_id;
    struct sockaddr_storage sspp_addr;
} SW_PACKED;

struct sctp_prim {
    sctp_assoc_t ssp_assoc_id;
    struct sockaddr_storage ssp_addr;
} SW_PACKED;
#define sctp_setprim sctp_prim

struct sctp_setadaptation {
    uint32_t ssb_adaptation_ind;
};

enum sctp_spp_flags {
    SPP_HB_ENABLE = 1 << 0,
    SPP_HB_DISABLE = 1 << 1,
    SPP_HB = SPP_HB_ENABLE | SPP_HB_DISABLE,
    SPP_HB_DEMAND = 1 << 2,
    SPP_PMTUD_ENABLE = 1 << 3,
    SPP_PMTUD_DISABLE = 1 << 4,
    SPP_PMTUD = SPP_PMTUD_ENABLE | SPP_PMTUD_DISABLE,
    SPP_SACKDELAY_ENABLE = 1 << 5,
    SPP_SACKDELAY_DISABLE = 1 << 6,
    SPP_SACKDELAY = SPP_SACKDELAY_ENABLE | SPP_SACKDELAY_DISABLE,
    SPP_HB_TIME_IS_ZERO = 1 << 7,
    SPP_IPV6_FLOWLABEL = 1 << 8,
    SPP_DSCP = 1 << 9,
};

struct sctp_paddrparams {
    sctp_assoc_t spp_assoc_id;
    struct sockaddr_storage spp_address;
    uint32_t spp_hbinterval; /* milliseconds */
    uint16_t spp_pathmaxrxt;
    uint32_t spp_pathmtu;
    uint32_t spp_sackdelay; /* milliseconds */
    uint32_t spp_flags;
    uint32_t spp_ipv6_flowlabel;
    uint8_t spp_dscp;
} SW_PACKED;

struct sctp_authchunk {
    uint8_t sauth_chunk;
};

enum {
    SCTP_AUTH_HMAC_ID_SHA1 = 1,
    SCTP_AUTH_HMAC_ID_SHA256 = 3,
};

struct sctp_hmacalgo {
    uint32_t shmac_num_idents;
    SW_TAIL(uint16_t, shmac_idents);
};
#define shmac_number_of_idents shmac_num_idents

struct sctp_authkey {
    sctp_assoc_t sca_assoc_id;
    uint16_t sca_keynumber;
    uint16_t sca_keylength;
    SW_TAIL(uint8_t, sca_key);
};

struct sctp_authkeyid {
    sctp_assoc_t scact_assoc_id;
    uint16_t scact_keynumber;
};

struct sctp_sack_info {
    sctp_assoc_t sack_assoc_id;
    uint32_t sack_delay; /* milliseconds */
    uint32_t sack_freq;
};

struct sctp_assoc_value {
    sctp_assoc_t assoc_id;
    uint32_t assoc_value;
};

struct sctp_stream_value {
    sctp_assoc_t assoc_id;
    uint16_t stream_id;
    uint16_t stream_value;
};

enum sctp_spinfo_state {
    SCTP_INACTIVE = 0,
    SCTP_PF = 1,
    SCTP_ACTIVE = 2,
    SCTP_UNCONFIRMED = 3,
    SCTP_UNKNOWN = 0xffff,
};
#define SCTP_POTENTIALLY_FAILED SCTP_PF

struct sctp_paddrinfo {
    sctp_assoc_t spinfo_assoc_id;
    struct sockaddr_storage spinfo_address;
    int32_t spinfo_state; /* enum sctp_spinfo_state */
    uint32_t spinfo_cwnd;
    uint32_t spinfo_srtt; /* milliseconds */
    uint32_t spinfo_rto;  /* milliseconds */
    uint32_t spinfo_mtu;
} SW_PACKED;

enum sctp_sstat_state {
    SCTP_EMPTY = 0,
    SCTP_CLOSED = 1,
    SCTP_COOKIE_WAIT = 2,
    SCTP_COOKIE_ECHOED = 3,
    SCTP_ESTABLISHED = 4,
    SCTP_SHUTDOWN_PENDING = 5,
    SCTP_SHUTDOWN_SENT = 6,
    SCTP_SHUTDOWN_RECEIVED = 7,
    SCTP_SHUTDOWN_ACK_SENT = 8,
};

struct sctp_status {
    sctp_assoc_t sstat_assoc_id;
    int32_t sstat_state; /* enum sctp_sstat_state */
    uint32_t sstat_rwnd;
    uint16_t sstat_unackdata;
    uint16_t sstat_penddata;
    uint16_t sstat_instrms;
    uint16_t sstat_outstrms;
    uint32_t sstat_fragmentation_point;
    struct sctp_paddrinfo sstat_primary;
};

struct sctp_authchunks {
    sctp_assoc_t gauth_assoc_id;
    uint32_t gauth_number_of_chunks;
    SW_TAIL(uint8_t, gauth_chunks);
};
#define guth_number_of_chunks gauth_number_of_chunks

struct sctp_assoc_ids {
    uint32_t gaids_number_of_ids;
    SW_TAIL(sctp_assoc_t, gaids_assoc_id);
};

struct sctp_getaddrs_old {
    sctp_assoc_t assoc_id;
    int addr_num;
    struct sockaddr *addrs;
};

struct sctp_getaddrs {
    sctp_assoc_t assoc_id;
    uint32_t addr_num;
    SW_TAIL(uint8_t, addrs);
};

struct sctp_assoc_stats {
    sctp_assoc_t sas_assoc_id;
    struct sockaddr_storage sas_obs_rto_ipaddr; /* where the RTO was longest */
    uint64_t sas_maxrto;
    uint64_t sas_isacks; /* i: came in, o: went out */
    uint64_t sas_osacks;
    uint64_t sas_opackets;
    uint64_t sas_ipackets;
    uint64_t sas_rtxchunks;
    uint64_t sas_outofseqtsns;
    uint64_t sas_idupchunks;
    uint64_t sas_gapcnt;
    uint64_t sas_ouodchunks; /* unordered DATA */
    uint64_t sas_iuodchunks;
    uint64_t sas_oodchunks; /* ordered DATA */
    uint64_t sas_iodchunks;
    uint64_t sas_octrlchunks;
    uint64_t sas_ictrlchunks;
};

typedef struct {
    sctp_assoc_t associd;
    int sd;
} sctp_peeloff_arg_t;

typedef struct {
    sctp_peeloff_arg_t p_arg;
    unsigned flags;
} sctp_peeloff_flags_arg_t;

struct sctp_paddrthlds {
    sctp_assoc_t spt_assoc_id;
    struct sockaddr_storage spt_address;
    uint16_t spt_pathmaxrxt;
    uint16_t spt_pathpfthld;
};

struct sctp_paddrthlds_v2 {
    sctp_assoc_t spt_assoc_id;
    struct sockaddr_storage spt_address;
    uint16_t spt_pathmaxrxt;
    uint16_t spt_pathpfthld;
    uint16_t spt_pathcpthld;
};

struct sctp_prstatus {
    sctp_assoc_t sprstat_assoc_id;
    uint16_t sprstat_sid;
    uint16_t sprstat_policy;
    uint64_t sprstat_abandoned_unsent;
    uint64_t sprstat_abandoned_sent;
};

struct sctp_default_prinfo {
    sctp_assoc_t pr_assoc_id;
    uint32_t pr_value;
    uint16_t pr_policy;
};

#define SCTP_ENABLE_RESET_STREAM_REQ 0x01
#define SCTP_ENABLE_RESET_ASSOC_REQ 0x02
#define SCTP_ENABLE_CHANGE_ASSOC_REQ 0x04
#define SCTP_ENABLE_STRRESET_MASK 0x07
#define SCTP_STREAM_RESET_INCOMING 0x01
#define SCTP_STREAM_RESET_OUTGOING 0x02

struct sctp_reset_streams {
    sctp_assoc_t srs_assoc_id;
    uint16_t srs_flags;
    uint16_t srs_number_streams;
    SW_TAIL(uint16_t, srs_stream_list);
};

struct sctp_add_streams {
    sctp_assoc_t sas_assoc_id;
    uint16_t sas_instrms;
    uint16_t sas_outstrms;
};

struct sctp_udpencaps {
    sctp_assoc_t sue_assoc_id;
    struct sockaddr_storage sue_address;
    uint16_t sue_port;
};

enum sctp_sched_type {
    SCTP_SS_FCFS = 0,
    SCTP_SS_DEFAULT = SCTP_SS_FCFS,
    SCTP_SS_PRIO = 1,
    SCTP_SS_RR = 2,
    SCTP_SS_MAX = SCTP_SS_RR,
};

struct sctp_probeinterval {
    sctp_assoc_t spi_assoc_id;
    struct sockaddr_storage spi_address;
    uint32_t spi_interval; /* milliseconds */
};

#define SCTP_BINDX_ADD_ADDR 0x01
#define SCTP_BINDX_REM_ADDR 0x02

#undef SW_TAIL
#undef SW_PACKED

#endif

/* ---- functions (RFC 6458 section 9) ------------------------------------------------------ */

#ifndef SOL_SCTP
#define SOL_SCTP 132
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Type of the `info` that sctp_sendv takes. */
enum {
    SCTP_SENDV_NOINFO = 0,
    SCTP_SENDV_SNDINFO = 1,  /* struct sctp_sndinfo */
    SCTP_SENDV_PRINFO = 2,   /* struct sctp_prinfo */
    SCTP_SENDV_AUTHINFO = 3, /* struct sctp_authinfo */
    SCTP_SENDV_SPA = 4,      /* struct sctp_sendv_spa */
};

/* Which parts of it hold. */
#define SCTP_SEND_SNDINFO_VALID 0x1
#define SCTP_SEND_PRINFO_VALID 0x2
#define SCTP_SEND_AUTHINFO_VALID 0x4

struct sctp_sendv_spa {
    uint32_t sendv_flags;
    struct sctp_sndinfo sendv_sndinfo;
    struct sctp_prinfo sendv_prinfo;
    struct sctp_authinfo sendv_authinfo;
};

/* Type of the `info` that sctp_recvv returns. */
enum {
    SCTP_RECVV_NOINFO = 0,
    SCTP_RECVV_RCVINFO = 1, /* struct sctp_rcvinfo */
    SCTP_RECVV_NXTINFO = 2, /* struct sctp_nxtinfo */
    SCTP_RECVV_RN = 3,      /* struct sctp_recvv_rn */
};

struct sctp_recvv_rn {
    struct sctp_rcvinfo recvv_rcvinfo;
    struct sctp_nxtinfo recvv_nxtinfo;
};

/* Lists of addresses are packed: each is as long as its family says. Each function returns -1 with errno if it fails. */

int sctp_bindx(int sd, struct sockaddr *addrs, int addrcnt, int flags);
int sctp_connectx(int sd, struct sockaddr *addrs, int addrcnt, sctp_assoc_t *id);
int sctp_peeloff(int sd, sctp_assoc_t assoc_id);
int sctp_peeloff_flags(int sd, sctp_assoc_t assoc_id, unsigned flags);
int sctp_getpaddrs(int sd, sctp_assoc_t id, struct sockaddr **addrs);
int sctp_freepaddrs(struct sockaddr *addrs);
int sctp_getladdrs(int sd, sctp_assoc_t id, struct sockaddr **addrs);
int sctp_freeladdrs(struct sockaddr *addrs);
int sctp_opt_info(int sd, sctp_assoc_t id, int opt, void *arg, socklen_t *size);
int sctp_getaddrlen(sa_family_t family);

int sctp_send(int sd, const void *msg, size_t len, const struct sctp_sndrcvinfo *sinfo, int flags);
int sctp_sendx(int sd, const void *msg, size_t len, struct sockaddr *addrs, int addrcnt,
               const struct sctp_sndrcvinfo *sinfo, int flags);
int sctp_sendmsg(int sd, const void *msg, size_t len, struct sockaddr *to, socklen_t tolen, uint32_t ppid,
                 uint32_t flags, uint16_t stream_no, uint32_t timetolive, uint32_t context);
int sctp_sendv(int sd, const struct iovec *iov, int iovcnt, struct sockaddr *addrs, int addrcnt, void *info,
               socklen_t infolen, unsigned int infotype, int flags);

/* *flags are those of the call before, and those of the message after it. */
int sctp_recvmsg(int sd, void *msg, size_t len, struct sockaddr *from, socklen_t *fromlen,
                 struct sctp_sndrcvinfo *sinfo, int *flags);
int sctp_recvv(int sd, const struct iovec *iov, int iovlen, struct sockaddr *from, socklen_t *fromlen, void *info,
               socklen_t *infolen, unsigned int *infotype, int *flags);

#ifdef __cplusplus
}
#endif

#endif
