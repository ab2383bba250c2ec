#ifndef LIST_H
#define LIST_H

#include <stddef.h>
#include "node.h"
#include "util/log.h"

#define LIST_MAX 100
#define LIST_EACH(list, item) for (item = (list)->first; item; item = item->next)

typedef struct list list_t;
typedef int (*compare_fn)(const void *a, const void *b);

struct list {
    struct node *first;
    size_t size;
    int (*free)(void *);
};

enum mode { MODE_READ = 1, MODE_WRITE };

typedef union { int i; double d; } number;

extern int list_count;
static const char *list_name = "list";

list_t *list_new(size_t size, compare_fn compare);
void (*list_handler(int kind))(int);
static inline size_t list_size(const list_t *list) /* never NULL */ { return list->size; }

int list_main(int argc,
              char **argv)
{
    return 0;
}

#ifdef __linux__
int list_linux(void);
#endif
#endif
