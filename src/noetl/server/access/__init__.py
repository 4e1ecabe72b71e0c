"""Who a caller is and what he may do: tokens, roles, grants, tenants, quotas."""
