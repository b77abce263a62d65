// Engine: the data path of one node (placeholder for the full header; the public face is fixed).
#pragma once
