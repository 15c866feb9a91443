/* notify.h - tells the service manager that started the server how it is (sd_notify). */
#ifndef RVI_SERVER_NOTIFY_H
#define RVI_SERVER_NOTIFY_H

/* path: NOTIFY_SOCKET; NULL or "": nobody wants to know. state: "READY=1", "STOPPING=1". */
void rvi_notify(const char *path, const char *state);

#endif
